//! Which step can start now. Pure: it starts nothing.

use super::Step;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    Running,
    Passed,
    Failed,
}

/// The chosen steps and how far each one is.
pub(super) struct Schedule {
    steps: Vec<(&'static Step, Progress)>,
    keep_going: bool,
}

impl Schedule {
    pub(super) fn new(steps: &[&'static Step], keep_going: bool) -> Self {
        let steps = steps.iter().map(|step| (*step, Progress::Waiting)).collect();
        Self { steps, keep_going }
    }

    /// Takes the first step that can start. None can after a failure, unless the run keeps going.
    pub(super) fn start_next(&mut self) -> Option<&'static Step> {
        let failed = self.steps.iter().any(|(_, progress)| *progress == Progress::Failed);
        if failed && !self.keep_going {
            return None;
        }
        let next = self.steps.iter().position(|(step, progress)| {
            *progress == Progress::Waiting && self.needs_are_met(step) && self.folder_is_free(step)
        })?;
        self.steps[next].1 = Progress::Running;
        Some(self.steps[next].0)
    }

    /// Records how a step ended.
    pub(super) fn finish(&mut self, name: &str, passed: bool) {
        for (step, progress) in &mut self.steps {
            if step.name == name {
                *progress = if passed { Progress::Passed } else { Progress::Failed };
            }
        }
    }

    /// The names of the running steps.
    pub(super) fn running(&self) -> Vec<&'static str> {
        let running = self.steps.iter().filter(|(_, progress)| *progress == Progress::Running);
        running.map(|(step, _)| step.name).collect()
    }

    /// A step that was not chosen holds up nothing: each one can do its work alone.
    fn needs_are_met(&self, step: &Step) -> bool {
        self.steps
            .iter()
            .filter(|(other, _)| step.needs.contains(&other.name))
            .all(|(_, progress)| *progress == Progress::Passed)
    }

    fn folder_is_free(&self, step: &Step) -> bool {
        step.compiles_in.is_none()
            || !self.steps.iter().any(|(other, progress)| {
                *progress == Progress::Running && other.compiles_in == step.compiles_in
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Folder, STEPS};
    use super::*;

    const fn step(
        name: &'static str,
        needs: &'static [&'static str],
        compiles_in: Option<Folder>,
    ) -> Step {
        Step { name, about: "", needs, compiles_in, run: || Ok(()) }
    }

    static LINT: Step = step("lint", &[], Some(Folder::Debug));
    static BUILD: Step = step("build", &["lint"], Some(Folder::Debug));
    static DOCS: Step = step("docs", &[], Some(Folder::Debug));
    static RELEASE: Step = step("release", &[], Some(Folder::Release));

    fn start_all(schedule: &mut Schedule) -> Vec<&'static str> {
        std::iter::from_fn(|| schedule.start_next()).map(|step| step.name).collect()
    }

    #[test]
    fn one_step_at_a_time_compiles_in_a_folder() {
        let mut schedule = Schedule::new(&[&LINT, &DOCS, &RELEASE], false);
        assert_eq!(start_all(&mut schedule), ["lint", "release"]);
        schedule.finish("lint", true);
        assert_eq!(start_all(&mut schedule), ["docs"]);
        assert_eq!(schedule.running(), ["docs", "release"]);
    }

    #[test]
    fn step_waits_for_what_it_needs() {
        let mut schedule = Schedule::new(&[&BUILD, &LINT], false);
        assert_eq!(start_all(&mut schedule), ["lint"]);
        schedule.finish("lint", true);
        assert_eq!(start_all(&mut schedule), ["build"]);
    }

    #[test]
    fn step_alone_waits_for_nothing() {
        let mut schedule = Schedule::new(&[&BUILD], false);
        assert_eq!(start_all(&mut schedule), ["build"]);
    }

    #[test]
    fn nothing_starts_after_a_failure() {
        let mut schedule = Schedule::new(&[&LINT, &BUILD, &DOCS], false);
        assert_eq!(start_all(&mut schedule), ["lint"]);
        schedule.finish("lint", false);
        assert!(start_all(&mut schedule).is_empty());
    }

    #[test]
    fn keep_going_starts_all_but_dependent_steps() {
        let mut schedule = Schedule::new(&[&LINT, &BUILD, &DOCS], true);
        assert_eq!(start_all(&mut schedule), ["lint"]);
        schedule.finish("lint", false);
        assert_eq!(start_all(&mut schedule), ["docs"]);
    }

    #[test]
    fn every_step_of_ci_can_start() {
        let steps: Vec<&Step> = STEPS.iter().collect();
        let mut schedule = Schedule::new(&steps, false);
        let mut started = 0;
        while let Some(step) = schedule.start_next() {
            started += 1;
            schedule.finish(step.name, true);
        }
        assert_eq!(started, STEPS.len());
    }
}
