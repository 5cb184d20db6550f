//! Intervals in which holders rely on a lock.

/// An interval in which a holder relied on the lock: from `from` up to, not including, `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldInterval<H> {
    /// The start, in the caller's unit of time.
    pub from: u64,
    /// The end, in the same unit.
    pub until: u64,
    /// The holder. Intervals of equal holders may overlap.
    pub holder: H,
}

/// All pairs of intervals of one lock that overlap and belong to different holders, as indices into
/// `intervals`: the one that starts earlier comes first.
pub fn overlaps<H: PartialEq>(intervals: &[HoldInterval<H>]) -> Vec<(usize, usize)> {
    let mut order: Vec<_> = (0..intervals.len()).collect();
    order.retain(|index| intervals[*index].from < intervals[*index].until);
    order.sort_by_key(|index| intervals[*index].from);
    let mut open: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for index in order {
        let interval = &intervals[index];
        open.retain(|other| intervals[*other].until > interval.from);
        let others = open.iter().copied();
        let others = others.filter(|other| intervals[*other].holder != interval.holder);
        found.extend(others.map(|other| (other, index)));
        open.push(index);
    }
    found
}

/// Every start of an interval at which holders rely on more than the limit of the lock that they share: the indices of the
/// open intervals. Each interval has the weight at its index. Intervals of equal holders count once.
pub fn excesses<H: PartialEq>(
    intervals: &[HoldInterval<H>],
    weights: &[u64],
    limit: u64,
) -> Vec<Vec<usize>> {
    let starts = intervals
        .iter()
        .filter(|interval| interval.from < interval.until);
    let open = starts.map(|start| {
        let open = |at: &usize| (intervals[*at].from..intervals[*at].until).contains(&start.from);
        (0..intervals.len()).filter(open).collect::<Vec<_>>()
    });
    let mut found: Vec<_> = open
        .filter(|open| {
            let is_first = |at: &&usize| {
                let mut same = open.iter();
                same.find(|other| intervals[**other].holder == intervals[**at].holder) == Some(*at)
            };
            let weights = open.iter().filter(is_first).map(|at| weights[*at]);
            weights.sum::<u64>() > limit
        })
        .collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(holds: &[(u64, u64, char)]) -> Vec<(usize, usize)> {
        let interval = |&(from, until, holder)| HoldInterval {
            from,
            until,
            holder,
        };
        overlaps(&holds.iter().map(interval).collect::<Vec<_>>())
    }

    #[test]
    fn holders_in_turn_do_not_overlap() {
        assert_eq!(check(&[(5, 9, 'b'), (0, 5, 'a'), (9, 12, 'a')]), []);
        assert_eq!(check(&[(0, 10, 'a'), (5, 5, 'b')]), [], "an empty interval");
    }

    #[test]
    fn intervals_of_one_holder_may_overlap() {
        assert_eq!(check(&[(0, 10, 'a'), (5, 15, 'a')]), []);
        // The longer of both is still compared.
        assert_eq!(check(&[(0, 20, 'a'), (5, 8, 'a'), (10, 11, 'b')]), [(0, 2)]);
    }

    #[test]
    fn weights_over_the_limit_are_found() {
        let interval = |(from, until, holder)| HoldInterval {
            from,
            until,
            holder,
        };
        let holds = [(0, 10, 'a'), (2, 6, 'b'), (6, 9, 'c'), (3, 5, 'a')].map(interval);
        assert_eq!(excesses(&holds, &[2, 1, 1, 2], 3), [[0; 0]; 0]);
        assert_eq!(excesses(&holds, &[2, 1, 2, 2], 3), [[0, 2]]);
        assert_eq!(
            excesses(&holds, &[2, 2, 1, 2], 3),
            [vec![0, 1], vec![0, 1, 3]]
        );
    }

    #[test]
    fn every_pair_is_found() {
        let found = check(&[(4, 6, 'c'), (0, 10, 'a'), (2, 5, 'b')]);
        assert_eq!(found, [(1, 2), (1, 0), (2, 0)]);
    }
}
