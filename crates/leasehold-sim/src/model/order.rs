//! Putting what has only a letter in an order that does not depend on it.

/// Tells every order of the first `count` places that sorts them by their keys. More than one, where
/// some have the same key; those that are `alike` in everything are not told apart.
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

    fn told(keys: [u8; 4], alike: bool) -> Vec<[usize; 4]> {
        let mut told = Vec::new();
        orders(&keys, 3, |_, _| alike, |order| told.push(*order));
        told
    }

    #[test]
    fn ties_are_told_in_every_order() {
        assert_eq!(told([3, 1, 2, 0], false), [[1, 2, 0, 3]]);
        assert_eq!(told([2, 1, 1, 0], false), [[1, 2, 0, 3], [2, 1, 0, 3]]);
        assert_eq!(told([2, 1, 1, 0], true), [[1, 2, 0, 3]]);
        assert_eq!(told([1, 1, 1, 0], false).len(), 6);
    }
}
