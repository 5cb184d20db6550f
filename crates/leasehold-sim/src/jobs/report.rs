//! The result of a simulation.

/// What happened in a simulation.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many runs said they were complete, for the start of each day.
    pub completed: Vec<u32>,
    /// How many runs failed, crashed, or were paused and lost their lease.
    pub failed: u32,
    /// How many of the completed runs began after another one of that day had failed.
    pub taken_over: u32,
    /// How many starts found that the run was complete.
    pub found_complete: u32,
}

impl Report {
    /// How many days have more than one completed run, and how many have none.
    #[must_use]
    pub fn wrong_days(&self) -> (usize, usize) {
        let days = |is_wrong: fn(&u32) -> bool| {
            let completed = self.completed.iter().copied();
            completed.filter(is_wrong).count()
        };
        (days(|runs| *runs > 1), days(|runs| *runs == 0))
    }
}
