//! The names in labels. Clients choose the names of models, so only a limited number of them
//! become labels.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The value of a label.
pub type Label = Arc<str>;

/// The label of all models beyond the limit.
pub const OTHER: &str = "other";

/// How many models that the configuration does not name have a label of their own.
const MAX_MODELS: usize = 100;
/// How many bytes the name of such a model may have.
const MAX_NAME_BYTES: usize = 100;

/// The names that are used as labels.
#[derive(Debug)]
pub(super) struct Names {
    backends: BTreeSet<Label>,
    models: BTreeSet<Label>,
    /// How many of the models are not in the configuration.
    unknown: usize,
    other: Label,
}

impl Default for Names {
    fn default() -> Self {
        let (backends, models) = (BTreeSet::new(), BTreeSet::new());
        Self { backends, models, unknown: 0, other: OTHER.into() }
    }
}

impl Names {
    /// The label of a backend. The configuration limits their number.
    pub(super) fn backend(&mut self, name: &str) -> Label {
        label(&mut self.backends, name)
    }

    /// Gives a model of the configuration a label of its own.
    pub(super) fn know(&mut self, model: &str) {
        label(&mut self.models, model);
    }

    /// The label of a model. A new name gets its own only if a backend has `answered` to it, so that
    /// misspelled and invented names cannot use up the limit.
    pub(super) fn model(&mut self, name: &str, answered: bool) -> Label {
        if let Some(known) = self.models.get(name) {
            return known.clone();
        }
        if name.is_empty() {
            return Label::default();
        }
        if !answered || self.unknown == MAX_MODELS || name.len() > MAX_NAME_BYTES {
            return self.other.clone();
        }
        self.unknown += 1;
        label(&mut self.models, name)
    }
}

fn label(labels: &mut BTreeSet<Label>, name: &str) -> Label {
    if let Some(known) = labels.get(name) {
        return known.clone();
    }
    let new: Label = name.into();
    labels.insert(new.clone());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_beyond_the_limit_share_one_label() {
        let mut names = Names::default();
        names.know("configured");
        assert_eq!(&*names.model("invented", false), OTHER);
        assert_eq!(&*names.model(&"x".repeat(MAX_NAME_BYTES + 1), true), OTHER);
        for at in 0..MAX_MODELS {
            assert_eq!(&*names.model(&format!("model-{at}"), true), format!("model-{at}"));
        }
        assert_eq!(&*names.model("one-more", true), OTHER);
        assert_eq!(&*names.model("model-7", false), "model-7");
        assert_eq!(&*names.model("configured", false), "configured");
        assert_eq!(&*names.model("", true), "");
    }
}
