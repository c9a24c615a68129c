//! The edits of a request on a tree of values: slow and lossy, but simple enough to trust.

use serde_json::{Map, Value, json};
use throughline_codec::dialects::anthropic::rewrite::{PLACEHOLDER, ThinkingEdit};

/// A change of a request.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Which blocks stay, for each message that loses some.
    pub(crate) keep: Vec<(usize, Vec<bool>)>,
    /// Another model.
    pub(crate) model: Option<&'static str>,
    /// The thinking setting.
    pub(crate) thinking: ThinkingEdit,
    /// Whether the provider should drop blocks of another conversation.
    pub(crate) drop_bound: bool,
}

impl Default for Change {
    fn default() -> Self {
        Self { keep: Vec::new(), model: None, thinking: ThinkingEdit::Keep, drop_bound: false }
    }
}

impl Change {
    /// Applies the change. Returns how many messages got a placeholder.
    pub(crate) fn apply(&self, request: &mut Value) -> usize {
        let mut filled = 0;
        for (at, keep) in &self.keep {
            let blocks = request["messages"][at]["content"].as_array_mut().unwrap();
            let mut keep = keep.iter();
            blocks.retain(|_| *keep.next().unwrap());
            if blocks.is_empty() {
                blocks.push(json!({"type": "text", "text": PLACEHOLDER}));
                filled += 1;
            }
        }
        let request = request.as_object_mut().unwrap();
        if let (Some(model), Some(place)) = (self.model, request.get_mut("model")) {
            *place = json!(model);
        }
        self.set_thinking(request);
        filled
    }

    fn set_thinking(&self, request: &mut Map<String, Value>) {
        let mut setting = match &self.thinking {
            ThinkingEdit::Keep if !self.drop_bound => return,
            ThinkingEdit::Keep => match request.get("thinking") {
                Some(Value::Null) | None => json!({"type": "adaptive"}),
                Some(setting) => setting.clone(),
            },
            ThinkingEdit::Remove => {
                // Null means absent, so it may stay.
                if request.get("thinking").is_some_and(Value::is_object) {
                    request.remove("thinking");
                }
                return;
            }
            ThinkingEdit::Budget(budget) => json!({"type": "enabled", "budget_tokens": budget}),
            ThinkingEdit::Adaptive => json!({"type": "adaptive"}),
            ThinkingEdit::Disabled => json!({"type": "disabled"}),
            ThinkingEdit::Written { value, .. } => serde_json::from_slice(value).unwrap(),
        };
        if self.drop_bound && self.thinking != ThinkingEdit::Disabled {
            setting["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
        }
        request.insert("thinking".to_owned(), setting);
    }
}
