//! Labels of attempts and masters, and sets of masters.

/// The label of an attempt.
pub(super) fn name(attempt: usize) -> char {
    ['A', 'B', 'C', 'D'].get(attempt).copied().unwrap_or('?')
}

/// Every smallest majority of the masters, one bit for each.
pub(super) fn majorities(masters: usize) -> impl Iterator<Item = u32> {
    let majority = masters as u32 / 2 + 1;
    (0..1_u32 << masters).filter(move |set| set.count_ones() == majority)
}

/// The items for which this is true, one bit for each.
pub(super) fn set<T>(items: &[T], is: impl Fn(&T) -> bool) -> u8 {
    let items = items.iter().zip(0..);
    items.fold(0, |all, (item, at)| all | u8::from(is(item)) << at)
}

/// The masters in a set.
pub(super) fn members(set: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |at| set & 1 << at != 0)
}

/// The label of a set of masters.
pub(super) fn list(set: u32) -> String {
    let numbers = members(set).map(|at| (at + 1).to_string());
    numbers.collect::<Vec<_>>().join(" and ")
}
