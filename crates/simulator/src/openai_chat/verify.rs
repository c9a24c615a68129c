//! Verification of the reasoning a client sends back: there or not there, ours, and unchanged.

use std::collections::HashSet;

use serde_json::Value;

use super::ask::{Ask, is, list};
use super::marks::{self, ANYWHERE, IN_ID};
use super::modes::Plan;
use super::variants::{Back, Shows, SignsCalls, Variant};
use crate::openai::refused;
use crate::refusal::Refusal;
use crate::signing::{Hash, Signer, hash};

/// What stands in for a signature that was lost, by Google's leave.
const SKIP: &str = "skip_thought_signature_validator";

/// What verification runs against.
pub(crate) struct Verifier<'a> {
    /// `None` where nothing is signed, and so nothing is verified.
    pub(crate) signer: Option<&'a Signer>,
    pub(crate) variant: &'static Variant,
    pub(crate) plan: Plan,
}

impl Verifier<'_> {
    /// Refuses reasoning that is not as it must be.
    pub(crate) fn check(&self, ask: &Ask) -> Result<(), Refusal> {
        let mut seen = HashSet::new();
        for (index, message) in ask.messages().iter().enumerate() {
            if is(message, "assistant") {
                self.check_fields(message, index)?;
                match self.variant.back {
                    Back::Details => self.check_details(message, index, &mut seen)?,
                    Back::Blocks if self.plan.shows == Shows::Blocks => {
                        self.check_blocks(message, index)?;
                    }
                    _ => {}
                }
            }
        }
        if self.variant.back == Back::Blocks {
            self.check_open_loop(ask)?;
        }
        self.check_calls(ask)
    }

    /// The readable members.
    fn check_fields(&self, message: &Value, index: usize) -> Result<(), Refusal> {
        let given = !message["reasoning_content"].is_null();
        let path = format!("messages[{index}].reasoning_content");
        match self.variant.back {
            Back::Required if self.plan.thinks && !given => Err(refused(
                &path,
                None,
                "The `reasoning_content` in the thinking mode must be passed back to the API.",
            )),
            Back::Forbidden if given => Err(refused(
                &path,
                None,
                "The `reasoning_content` of earlier turns must not be passed back to the API.",
            )),
            _ => Ok(()),
        }
    }

    /// OpenRouter: the whole list, unchanged and in order.
    fn check_details<'a>(
        &self,
        message: &'a Value,
        index: usize,
        seen: &mut HashSet<&'a str>,
    ) -> Result<(), Refusal> {
        let mut place = ANYWHERE;
        for (at, detail) in list(&message["reasoning_details"]).iter().enumerate() {
            let path = format!("messages[{index}].reasoning_details[{at}]");
            let kind = detail["type"].as_str().unwrap_or_default();
            let (member, marked) = match kind {
                "reasoning.text" => ("text", "signature"),
                "reasoning.summary" => ("summary", "signature"),
                "reasoning.encrypted" => ("data", "data"),
                // The shape has no other kinds.
                _ => continue,
            };
            let shown = detail[member].as_str().unwrap_or_default();
            let shown = if marked == "data" { "" } else { shown };
            let mark = detail[marked].as_str().unwrap_or_default();
            if !mark.is_empty() && !seen.insert(mark) {
                let message = format!("{path}: the same detail stands in an earlier message.");
                return Err(refused(&path, None, message));
            }
            self.check_detail(detail, kind, shown, mark, place, &path)?;
            place = marks::next(place, kind, shown, mark);
        }
        Ok(())
    }

    fn check_detail(
        &self,
        detail: &Value,
        kind: &str,
        shown: &str,
        mark: &str,
        place: Hash,
        path: &str,
    ) -> Result<(), Refusal> {
        let Some(signer) = self.signer else {
            return Ok(());
        };
        // A detail without a format is taken for one of Claude's.
        let format = detail["format"].as_str().unwrap_or("anthropic-claude-v1");
        if mark.is_empty() && kind != "reasoning.encrypted" {
            let signed = matches!(format, "anthropic-claude-v1" | "google-gemini-v1");
            return if signed && kind == "reasoning.text" {
                Err(invalid(path, "signature", "thinking"))
            } else {
                Ok(())
            };
        }
        let opened = marks::open(signer, self.variant, mark);
        let opened = opened.filter(|opened| opened.shown == hash(&[shown.as_bytes()]));
        match opened {
            Some(opened) if opened.prefix == place => Ok(()),
            Some(_) => Err(refused(
                path,
                None,
                format!(
                    "{path}: `reasoning_details` must be sent back whole, unchanged and in order."
                ),
            )),
            None if format.ends_with("openai-responses-v1") => Err(unverified(path, mark)),
            None if kind == "reasoning.encrypted" => {
                Err(invalid(path, "data", "redacted_thinking"))
            }
            None => Err(invalid(path, "signature", "thinking")),
        }
    }

    /// LiteLLM: the blocks of Claude, each as it was.
    fn check_blocks(&self, message: &Value, index: usize) -> Result<(), Refusal> {
        for (at, block) in list(&message["thinking_blocks"]).iter().enumerate() {
            let path = format!("messages[{index}].thinking_blocks[{at}]");
            let kind = block["type"].as_str().unwrap_or_default();
            let (shown, marked) = match kind {
                "thinking" => (block["thinking"].as_str().unwrap_or_default(), "signature"),
                _ => ("", "data"),
            };
            let Some(signer) = self.signer else {
                continue;
            };
            let mark = block[marked].as_str().unwrap_or_default();
            let opened = marks::open(signer, self.variant, mark);
            if opened.is_none_or(|opened| opened.shown != hash(&[shown.as_bytes()])) {
                return Err(invalid(&path, marked, kind));
            }
        }
        Ok(())
    }

    /// Claude goes on after a tool only with the thought that called it.
    fn check_open_loop(&self, ask: &Ask) -> Result<(), Refusal> {
        let claude = ask.model().to_lowercase().contains("claude");
        let messages = ask.messages();
        let waits = messages.last().is_some_and(|last| is(last, "tool"));
        if !claude || !self.plan.thinks || !waits || self.signer.is_none() {
            return Ok(());
        }
        let caller = messages.iter().rposition(|one| is(one, "assistant"));
        let Some((index, message)) = caller.and_then(|at| Some((at, messages.get(at)?))) else {
            return Ok(());
        };
        if list(&message["thinking_blocks"]).is_empty() {
            return Err(Refusal::invalid(format!(
                "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
            )));
        }
        Ok(())
    }

    /// Gemini: in the turn that is being answered, the first call of each step is signed. Earlier
    /// turns are not looked at.
    fn check_calls(&self, ask: &Ask) -> Result<(), Refusal> {
        let signs = marks::signs_calls(self.variant, ask.model());
        let model = ask.model().to_lowercase();
        let lenient = model.contains("gemini-2") || model.contains("gemini-1");
        let (Some(signer), false) = (self.signer, signs == SignsCalls::Never || lenient) else {
            return Ok(());
        };
        let messages = ask.messages().iter().enumerate().skip(ask.turn());
        for (index, message) in messages {
            for (at, call) in list(&message["tool_calls"]).iter().enumerate() {
                let name = call["function"]["name"].as_str().unwrap_or_default();
                let path = format!("messages[{index}].tool_calls[{at}]");
                match signature_of(call, signs) {
                    None if at == 0 => {
                        return Err(refused(
                            &path,
                            None,
                            format!(
                                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{name}` , position {index}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
                            ),
                        ));
                    }
                    None | Some(SKIP) => {}
                    Some(signature) => {
                        let arguments = call["function"]["arguments"].as_str();
                        let shown = marks::of_call(name, arguments.unwrap_or_default());
                        let opened = marks::open(signer, self.variant, &plain(signature));
                        let Some(opened) = opened else {
                            return Err(refused(&path, None, "Corrupted thought signature."));
                        };
                        if opened.shown != hash(&[shown.as_bytes()]) {
                            return Err(refused(&path, None, "Invalid thought signature."));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn signature_of(call: &Value, signs: SignsCalls) -> Option<&str> {
    let found = match signs {
        SignsCalls::Never => None,
        SignsCalls::ExtraContent => {
            let extra = &call["extra_content"];
            let google = extra["google"]["thought_signature"].as_str();
            google.or_else(|| extra["vertex"]["thought_signature"].as_str())
        }
        SignsCalls::ProviderFields => {
            let field = call["provider_specific_fields"]["thought_signature"].as_str();
            let id = call["id"].as_str().unwrap_or_default();
            field.or_else(|| id.split_once(IN_ID).map(|(_, signature)| signature))
        }
    };
    found.filter(|signature| !signature.is_empty())
}

/// Clients in Python write signatures anew in the other alphabet, which Google reads too.
fn plain(signature: &str) -> String {
    signature.replace('-', "+").replace('_', "/")
}

fn invalid(path: &str, member: &str, kind: &str) -> Refusal {
    let message = format!("{path}: Invalid `{member}` in `{kind}` block");
    refused(path, None, message)
}

fn unverified(path: &str, blob: &str) -> Refusal {
    let start: String = blob.chars().take(4).collect();
    refused(
        path,
        Some("invalid_encrypted_content"),
        format!(
            "The encrypted content {start}... could not be verified. Reason: Encrypted content could not be decrypted or parsed."
        ),
    )
}
