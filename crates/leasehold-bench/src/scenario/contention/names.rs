//! The choice among many names.

use fastrand::Rng;

/// Names of which some are wanted far more often than others: the n-th one an n-th as often as the
/// first, as words in a text or pages of a site are.
#[derive(Debug)]
pub(super) struct Names {
    /// For each name the part of all choices that fall on it or one before.
    cumulative: Vec<f64>,
}

impl Names {
    /// At least one.
    pub(super) fn new(count: u32) -> Self {
        let sums = (1..=count.max(1)).scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank);
            Some(*sum)
        });
        let mut cumulative: Vec<_> = sums.collect();
        let all = cumulative[cumulative.len() - 1];
        cumulative.iter_mut().for_each(|part| *part /= all);
        Self { cumulative }
    }

    /// The index of the next one.
    pub(super) fn choose(&self, random: &mut Rng) -> usize {
        if self.cumulative.len() == 1 {
            return 0;
        }
        let at = random.f64();
        let index = self.cumulative.partition_point(|part| *part <= at);
        // The last part is 1 only but for rounding.
        index.min(self.cumulative.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_is_wanted_most() {
        let names = Names::new(1_000);
        let mut random = Rng::with_seed(7);
        let mut chosen = vec![0_u32; 1_000];
        for _ in 0..1_000_000 {
            chosen[names.choose(&mut random)] += 1;
        }
        // The sum of 1/n up to 1,000 is 7.485.
        for rank in [1_u32, 2, 10, 100] {
            let share = f64::from(chosen[rank as usize - 1]) / 1e6;
            let expected = 1.0 / (7.485 * f64::from(rank));
            assert!((share / expected - 1.0).abs() < 0.1, "{rank}: {share}");
        }
        assert!(chosen.iter().all(|times| *times > 0));
        assert_eq!(Names::new(1).choose(&mut random), 0);
    }
}
