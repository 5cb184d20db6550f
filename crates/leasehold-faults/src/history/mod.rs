//! The history of a campaign: what processes and the campaign observe, one line for each event.

/// Declares an enum whose variants have labels for the report, in the order of the report.
macro_rules! labelled {
    ($(#[$attribute:meta])* $name:ident { $($variant:ident: $label:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name {
            $($variant,)+
        }

        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            pub(crate) fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }
        }
    };
}

pub(crate) use labelled;

mod directory;
mod events;
mod faults;
mod journal;

pub(crate) use self::directory::{History, Process, file_of, read};
pub(crate) use self::events::{
    Event, FencedWrite, HoldEvent, LeaseState, Note, ObservationKind, ObservedLeader, Sample,
    Share, WorldInfo,
};
pub(crate) use self::faults::{Fault, FaultEvent};
pub(crate) use self::journal::{EventReader, Journal};
