//! Thinking settings that models have refused. They are stronger than what the built-in table and the
//! server say about a model, and survive a restart.

use std::collections::HashMap;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use throughline_canonical::Effort;
use throughline_codec::dialects::RefusedSetting;

use super::learnt::{MAX_MODELS, MAX_NAME_BYTES};
use super::model::{Form, Model, Off};

/// What one model has refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RefusedSettings {
    /// Any thinking.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thinking: bool,
    /// What is left of turning thinking off.
    #[serde(skip_serializing_if = "Option::is_none")]
    off: Option<Off>,
    /// Forms of the setting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forms: Vec<Form>,
    /// The form that it named last.
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<Form>,
    /// The efforts that it named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted_efforts: Vec<Effort>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_efforts: Vec<Effort>,
    /// The range of budgets that it named.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<(u64, u64)>,
}

impl RefusedSettings {
    fn add(&mut self, refused: &RefusedSetting) {
        match refused {
            RefusedSetting::Thinking => self.thinking = true,
            RefusedSetting::Off { between_tools: true } => self.off = Some(Off::BetweenTools),
            RefusedSetting::Off { between_tools: false } => self.off = Some(Off::Never),
            RefusedSetting::Form { refused, instead } => {
                if !self.forms.contains(refused) {
                    self.forms.push(*refused);
                }
                self.instead = Some(*instead);
                if *instead == Form::Level {
                    // Off is a budget of zero, so there is none.
                    self.off = Some(Off::Never);
                }
            }
            RefusedSetting::Effort { refused, accepted, always_thinks } => {
                self.accepted_efforts.clone_from(accepted);
                let new = refused.filter(|effort| !self.refused_efforts.contains(effort));
                self.refused_efforts.extend(new);
                if *always_thinks {
                    self.off = Some(Off::Never);
                }
            }
            RefusedSetting::BudgetRange { least, most } => self.budget = Some((*least, *most)),
        }
    }

    /// Writes what is known over the values of the model.
    pub(super) fn apply(&self, model: &mut Model) {
        if self.thinking {
            model.thinking = Some(Form::None);
        }
        model.off = self.off.unwrap_or(model.off);
        if let Some(instead) = self.instead {
            let is_refused = |form: Form| self.forms.contains(&form);
            match is_refused(instead) {
                // Nothing that could be set is left.
                true => model.thinking = Some(Form::None),
                false if model.thinking.is_none_or(is_refused) => model.thinking = Some(instead),
                false => {}
            }
            model.refuses_budget = is_refused(Form::Budget);
        }
        if !self.accepted_efforts.is_empty() {
            model.efforts.clone_from(&self.accepted_efforts);
        }
        if !self.refused_efforts.is_empty() {
            if model.efforts.is_empty() {
                model.efforts = Effort::ALL.to_vec();
            }
            model.efforts.retain(|effort| !self.refused_efforts.contains(effort));
        }
        if let Some((least, most)) = self.budget {
            model.budget_min = least;
            model.budget_max = Some(most);
        }
    }
}

/// What models have refused, by lower-case name.
#[derive(Debug, Default)]
pub(super) struct Refused(RwLock<HashMap<Box<str>, RefusedSettings>>);

impl Refused {
    pub(super) fn find(&self, name: &str) -> Option<RefusedSettings> {
        self.0.read().get(name).cloned()
    }

    /// Adds a refusal. Returns all refusals of the model as text, if that changes them.
    pub(super) fn add(&self, name: &str, refused: &RefusedSetting) -> Option<String> {
        let mut settings = self.find(name).unwrap_or_default();
        settings.add(refused);
        let text = serde_json::to_string(&settings).ok()?;
        self.put(name, settings).then_some(text)
    }

    /// Restores the refusals of a model from their text.
    pub(super) fn restore(&self, name: &str, text: &str) -> bool {
        serde_json::from_str(text).is_ok_and(|settings| self.put(name, settings))
    }

    /// Returns whether anything changes.
    fn put(&self, name: &str, settings: RefusedSettings) -> bool {
        let mut models = self.0.write();
        let known = models.get(name);
        let fits = known.is_some() || models.len() < MAX_MODELS && name.len() <= MAX_NAME_BYTES;
        if known == Some(&settings) || !fits {
            return false;
        }
        models.insert(name.into(), settings);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(refused: &[RefusedSetting]) -> Model {
        let models = Refused::default();
        let mut stored = None;
        for refused in refused {
            stored = models.add("a\nb", refused).or(stored);
        }
        // What is stored has the same effect.
        let restored = Refused::default();
        assert!(restored.restore("a\nb", &stored.unwrap()));
        let settings = restored.find("a\nb").unwrap();
        assert_eq!(Some(&settings), models.find("a\nb").as_ref());
        let mut model = Model::default();
        settings.apply(&mut model);
        model
    }

    fn form(refused: Form, instead: Form) -> RefusedSetting {
        RefusedSetting::Form { refused, instead }
    }

    #[test]
    fn refused_form_leaves_the_one_that_the_error_names() {
        let model = applied(&[form(Form::Adaptive, Form::Budget)]);
        assert_eq!((model.thinking, model.refuses_budget), (Some(Form::Budget), false));
        let model = applied(&[form(Form::Budget, Form::Adaptive)]);
        assert_eq!((model.thinking, model.refuses_budget), (Some(Form::Adaptive), true));
        let model = applied(&[form(Form::Budget, Form::Level)]);
        assert_eq!((model.thinking, model.off), (Some(Form::Level), Off::Never));
        let both = [form(Form::Budget, Form::Adaptive), form(Form::Adaptive, Form::Budget)];
        assert_eq!(applied(&both).thinking, Some(Form::None));
    }

    #[test]
    fn refused_effort_leaves_the_accepted_ones() {
        let effort = |refused, accepted: &[Effort], always_thinks| RefusedSetting::Effort {
            refused: Some(refused),
            accepted: accepted.to_vec(),
            always_thinks,
        };
        let some = [Effort::Low, Effort::High];
        let model = applied(&[effort(Effort::Max, &some, true)]);
        assert_eq!((model.efforts.as_slice(), model.off), (&some[..], Off::Never));
        let model =
            applied(&[effort(Effort::Minimal, &[], false), effort(Effort::Max, &[], false)]);
        assert_eq!((model.efforts.as_slice(), model.off), (&Effort::ALL[1..5], Off::Disabled));
    }

    #[test]
    fn refused_off_budget_and_thinking_are_known() {
        for between_tools in [false, true] {
            let off = if between_tools { Off::BetweenTools } else { Off::Never };
            assert_eq!(applied(&[RefusedSetting::Off { between_tools }]).off, off);
        }
        let model = applied(&[RefusedSetting::BudgetRange { least: 5, most: 9 }]);
        assert_eq!((model.budget_min, model.budget_max), (5, Some(9)));
        assert_eq!(applied(&[RefusedSetting::Thinking]).thinking, Some(Form::None));
    }

    #[test]
    fn known_refusal_changes_nothing() {
        let models = Refused::default();
        assert!(models.add("m", &RefusedSetting::Thinking).is_some());
        assert_eq!(models.add("m", &RefusedSetting::Thinking), None);
        assert!(!models.restore("m", "no JSON"));
    }
}
