//! What a request could not carry, each told once.

use throughline_canonical::Loss;

/// Losses, each told once.
#[derive(Debug, Default)]
pub(super) struct Losses(pub(super) Vec<Loss>);

impl Losses {
    pub(super) fn omit(&mut self, part: &'static str, reason: &'static str) {
        self.add(Loss::of_part(part, reason));
    }

    pub(super) fn adapt(&mut self, setting: &'static str, reason: &'static str) {
        self.add(Loss::SettingAdapted { setting, reason });
    }

    pub(super) fn add(&mut self, loss: Loss) {
        if !self.0.contains(&loss) {
            self.0.push(loss);
        }
    }
}
