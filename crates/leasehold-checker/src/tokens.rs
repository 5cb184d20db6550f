//! The order of fencing tokens.

/// A grant of a lock, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<H> {
    /// When the acquisition began, in the caller's unit of time.
    pub requested: u64,
    /// When the holder had the grant, in the same unit.
    pub granted: u64,
    /// Its fencing token.
    pub token: u64,
    /// The holder. Grants of equal holders may share a token.
    pub holder: H,
}

/// All grants of one lock that were requested after another grant and have no larger token, as
/// indices into `grants`: (the earlier grant with the largest token, the later one).
pub fn token_disorder<H: PartialEq>(grants: &[Grant<H>]) -> Vec<(usize, usize)> {
    let mut requested: Vec<_> = (0..grants.len()).collect();
    let mut granted = requested.clone();
    requested.sort_by_key(|index| grants[*index].requested);
    granted.sort_by_key(|index| grants[*index].granted);
    let mut granted = granted.into_iter().peekable();
    let mut largest: Option<usize> = None;
    let mut found = Vec::new();
    for later in requested {
        let grant = &grants[later];
        while let Some(index) = granted.next_if(|index| grants[*index].granted < grant.requested) {
            if largest.is_none_or(|largest| grants[largest].token < grants[index].token) {
                largest = Some(index);
            }
        }
        if let Some(earlier) = largest
            && !follows(&grants[earlier], grant)
        {
            found.push((earlier, later));
        }
    }
    found
}

/// Whether the token of a later grant is larger, or the same of the same holder.
fn follows<H: PartialEq>(earlier: &Grant<H>, later: &Grant<H>) -> bool {
    later.token > earlier.token || (later.token == earlier.token && later.holder == earlier.holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(grants: &[(u64, u64, u64, char)]) -> Vec<(usize, usize)> {
        let grant = |&(requested, granted, token, holder)| Grant {
            requested,
            granted,
            token,
            holder,
        };
        token_disorder(&grants.iter().map(grant).collect::<Vec<_>>())
    }

    #[test]
    fn tokens_that_grow_are_in_order() {
        assert_eq!(check(&[(0, 1, 5, 'a'), (2, 3, 6, 'b'), (2, 9, 9, 'c')]), []);
        // Requested before the other was granted: either may be first.
        assert_eq!(check(&[(0, 5, 6, 'a'), (4, 7, 5, 'b')]), []);
    }

    #[test]
    fn only_one_holder_has_a_token() {
        assert_eq!(check(&[(0, 1, 5, 'a'), (2, 3, 5, 'a')]), []);
        assert_eq!(check(&[(0, 1, 5, 'a'), (2, 3, 5, 'b')]), [(0, 1)]);
    }

    #[test]
    fn the_largest_earlier_token_decides() {
        let grants = [
            (8, 9, 6, 'd'),
            (0, 1, 7, 'a'),
            (2, 3, 8, 'b'),
            (4, 5, 7, 'c'),
        ];
        assert_eq!(check(&grants), [(2, 3), (2, 0)]);
    }
}
