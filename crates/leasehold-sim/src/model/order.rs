//! Orders of attempts that do not depend on their names.

/// Visits every order of the first `count` places that sorts them by their keys. There are several if keys are
/// equal. Places that are `alike` in everything are not exchanged.
pub(super) fn orders<const A: usize, K: Ord>(
    keys: &[K; A],
    count: usize,
    alike: impl Fn(usize, usize) -> bool,
    mut visit: impl FnMut(&[usize; A]),
) {
    let mut order: [usize; A] = std::array::from_fn(|at| at);
    order[..count].sort_by_key(|at| &keys[*at]);
    let tied = |one: usize, other: usize| keys[one] == keys[other] && !alike(one, other);
    permute(&mut order, 0, count, &tied, &mut visit);
}

fn permute<const A: usize>(
    order: &mut [usize; A],
    place: usize,
    count: usize,
    tied: &impl Fn(usize, usize) -> bool,
    visit: &mut impl FnMut(&[usize; A]),
) {
    if place >= count {
        visit(order);
        return;
    }
    permute(order, place + 1, count, tied, visit);
    for other in place + 1..count {
        if tied(order[place], order[other]) {
            order.swap(place, other);
            permute(order, place + 1, count, tied, visit);
            order.swap(place, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited(keys: [u8; 4], alike: bool) -> Vec<[usize; 4]> {
        let mut visited = Vec::new();
        orders(&keys, 3, |_, _| alike, |order| visited.push(*order));
        visited
    }

    #[test]
    fn ties_are_visited_in_every_order() {
        assert_eq!(visited([3, 1, 2, 0], false), [[1, 2, 0, 3]]);
        assert_eq!(visited([2, 1, 1, 0], false), [[1, 2, 0, 3], [2, 1, 0, 3]]);
        assert_eq!(visited([2, 1, 1, 0], true), [[1, 2, 0, 3]]);
        assert_eq!(visited([1, 1, 1, 0], false).len(), 6);
    }
}
