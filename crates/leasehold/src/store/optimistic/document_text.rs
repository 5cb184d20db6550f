//! A document as text: a line with its time, a line for its head, and a line for each row, each watcher and each stamp.

use std::collections::BTreeMap;
use std::str::FromStr;

use leasehold_core::escape::Extent;
use leasehold_core::record::{Change, Changes, Part, Row, Slot};
use leasehold_core::{ArrivalId, ClientId, LeaseId, Rows, StoreTime};

use crate::store::rows::class::{ARRIVAL, DESCRIPTION, HOLDER, NOTE, WAITER, WATCHER};
use crate::store::rows::{self, Damage, DamagedText};

/// The class of stamps, beside those of rows.
const STAMP: u8 = 7;

/// The maximum length of a text.
pub(super) const TEXT_MAX: usize = 512 * 1024;

/// The first word of a document, with the version of the format.
const FORMAT: &str = "leasehold-1";

/// What a document has beside its record.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    /// The store's time of the write.
    pub(super) time: StoreTime,
    /// How often the document was written, so that no two texts are the same.
    pub(super) commits: u64,
    /// The clients that are notified of changes for observers, and until when.
    pub(super) watchers: BTreeMap<ClientId, StoreTime>,
    /// The write from which the client of each holder counts.
    pub(super) stamps: BTreeMap<LeaseId, u64>,
}

pub(super) fn write(rows: &Rows, header: &Header) -> String {
    let (time, commits) = (header.time.as_micros(), header.commits);
    let head = rows.head().to_text();
    let mut text = format!("{FORMAT} {time} {commits}\n{head}\n");
    let mut line = |class: u8, id: &str, value: &str| {
        text.push_str(&class.to_string());
        text.push(' ');
        Extent::Word.escape(id, &mut text);
        text.push(' ');
        Extent::Word.escape(value, &mut text);
        text.push('\n');
    };
    for (part, row) in rows.parts() {
        line(rows::class(&part), &part.id(), &row.to_text());
    }
    for (client, until) in &header.watchers {
        line(WATCHER, &client.to_string(), &until.as_micros().to_string());
    }
    for (lease, stamp) in &header.stamps {
        line(STAMP, &lease.to_string(), &stamp.to_string());
    }
    text
}

pub(super) fn read(text: &str) -> Result<(Rows, Header), DamagedText> {
    let damaged = |word| DamagedText(Damage::Lock, word);
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    if words.next() != Some(FORMAT) {
        return Err(damaged("format"));
    }
    let mut header = Header {
        time: time(words.next()).ok_or(damaged("time"))?,
        commits: number(words.next()).ok_or(damaged("number"))?,
        watchers: BTreeMap::new(),
        stamps: BTreeMap::new(),
    };
    let head = lines.next().ok_or(damaged("head"))?;
    let mut changes = Changes {
        head: Some(rows::read_head(head)?),
        rows: Vec::new(),
    };
    for line in lines {
        let mut words = line.split(' ');
        let class = number(words.next()).ok_or(damaged("class"))?;
        let mut word = || Extent::Word.unescape(words.next()?);
        let (id, value) = word().zip(word()).ok_or(damaged("row"))?;
        if class == u64::from(WATCHER) {
            let watcher = id.parse().ok().zip(time(Some(&value)));
            header.watchers.extend(watcher);
            continue;
        }
        if class == u64::from(STAMP) {
            let stamp = id.parse::<LeaseId>().ok().zip(number(Some(&value)));
            header.stamps.extend(stamp);
            continue;
        }
        let part = part(class, &id).ok_or(damaged("id"))?;
        let row = Row::from_text(&part, &value);
        let row = row.map_err(|found| DamagedText(Damage::of(&part), found.0))?;
        changes.rows.push(Change::Put(part, row));
    }
    let mut rows = Rows::default();
    rows.store(changes);
    Ok((rows, header))
}

fn part(class: u64, id: &str) -> Option<Part> {
    Some(match u8::try_from(class).ok()? {
        HOLDER => Part::Holder(id.parse().ok()?),
        WAITER => Part::Waiter(id.parse().ok()?),
        ARRIVAL => Part::Arrival(ArrivalId::parse(id).ok()?),
        NOTE => Part::Note(Slot::from_id(id)?),
        DESCRIPTION => Part::Description,
        _ => return None,
    })
}

fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
    word?.parse().ok()
}

fn time(word: Option<&str>) -> Option<StoreTime> {
    number(word).map(StoreTime::from_micros)
}
