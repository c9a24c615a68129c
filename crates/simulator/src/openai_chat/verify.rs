//! Verifies the reasoning a client sends back: present or absent as the server requires, from this
//! identity, and unchanged.

use std::collections::HashSet;

use serde_json::Value;

use super::modes::ThinkingPlan;
use super::request::{ParsedRequest, is, list};
use super::signatures::{self, ID_SEPARATOR, NO_PREFIX};
use super::variants::{CallSigning, ReasoningInput, ReasoningOutput, Variant};
use crate::openai::refused;
use crate::refusal::Refusal;
use crate::signing::{Hash, Signer, hash};

/// The value that Google documents for a lost signature.
const SKIP: &str = "skip_thought_signature_validator";

/// What the verification depends on.
pub(crate) struct Verifier<'a> {
    /// `None` if nothing is signed, so nothing is verified.
    pub(crate) signer: Option<&'a Signer>,
    pub(crate) variant: &'static Variant,
    pub(crate) plan: ThinkingPlan,
}

impl Verifier<'_> {
    /// Refuses missing, altered and misplaced reasoning.
    pub(crate) fn check(&self, request: &ParsedRequest) -> Result<(), Refusal> {
        let mut seen = HashSet::new();
        for (index, message) in request.messages().iter().enumerate() {
            if is(message, "assistant") {
                self.check_fields(message, index)?;
                match self.variant.reasoning_input {
                    ReasoningInput::Details => self.check_details(message, index, &mut seen)?,
                    ReasoningInput::Blocks
                        if self.plan.reasoning_output == ReasoningOutput::Blocks =>
                    {
                        self.check_blocks(message, index)?;
                    }
                    _ => {}
                }
            }
        }
        if self.variant.reasoning_input == ReasoningInput::Blocks {
            self.check_open_loop(request)?;
        }
        self.check_calls(request)
    }

    /// Checks `reasoning_content`.
    fn check_fields(&self, message: &Value, index: usize) -> Result<(), Refusal> {
        let given = !message["reasoning_content"].is_null();
        let path = format!("messages[{index}].reasoning_content");
        match self.variant.reasoning_input {
            ReasoningInput::Required if self.plan.thinks && !given => Err(refused(
                &path,
                None,
                "The `reasoning_content` in the thinking mode must be passed back to the API.",
            )),
            ReasoningInput::Forbidden if given => Err(refused(
                &path,
                None,
                "The `reasoning_content` of earlier turns must not be passed back to the API.",
            )),
            _ => Ok(()),
        }
    }

    /// OpenRouter: `reasoning_details` must be complete, unchanged and in order.
    fn check_details<'a>(
        &self,
        message: &'a Value,
        index: usize,
        seen: &mut HashSet<&'a str>,
    ) -> Result<(), Refusal> {
        let mut prefix = NO_PREFIX;
        for (at, detail) in list(&message["reasoning_details"]).iter().enumerate() {
            let path = format!("messages[{index}].reasoning_details[{at}]");
            let kind = detail["type"].as_str().unwrap_or_default();
            let (member, signed_member) = match kind {
                "reasoning.text" => ("text", "signature"),
                "reasoning.summary" => ("summary", "signature"),
                "reasoning.encrypted" => ("data", "data"),
                // `shape` has refused all other kinds.
                _ => continue,
            };
            let shown = detail[member].as_str().unwrap_or_default();
            let shown = if signed_member == "data" { "" } else { shown };
            let signature = detail[signed_member].as_str().unwrap_or_default();
            if !signature.is_empty() && !seen.insert(signature) {
                let message = format!("{path}: the same detail is in an earlier message.");
                return Err(refused(&path, None, message));
            }
            self.check_detail(detail, kind, shown, signature, prefix, &path)?;
            prefix = signatures::next(prefix, kind, shown, signature);
        }
        Ok(())
    }

    fn check_detail(
        &self,
        detail: &Value,
        kind: &str,
        shown: &str,
        signature: &str,
        prefix: Hash,
        path: &str,
    ) -> Result<(), Refusal> {
        let Some(signer) = self.signer else {
            return Ok(());
        };
        // A detail without a format counts as one of Claude's.
        let format = detail["format"].as_str().unwrap_or("anthropic-claude-v1");
        if signature.is_empty() && kind != "reasoning.encrypted" {
            let signed = matches!(format, "anthropic-claude-v1" | "google-gemini-v1");
            return if signed && kind == "reasoning.text" {
                Err(invalid(path, "signature", "thinking"))
            } else {
                Ok(())
            };
        }
        let opened = signatures::open(signer, self.variant, signature);
        let opened = opened.filter(|opened| opened.shown == hash(&[shown.as_bytes()]));
        match opened {
            Some(opened) if opened.prefix == prefix => Ok(()),
            Some(_) => Err(refused(
                path,
                None,
                format!(
                    "{path}: `reasoning_details` must be sent back whole, unchanged and in order."
                ),
            )),
            None if format.ends_with("openai-responses-v1") => Err(unverified(path, signature)),
            None if kind == "reasoning.encrypted" => {
                Err(invalid(path, "data", "redacted_thinking"))
            }
            None => Err(invalid(path, "signature", "thinking")),
        }
    }

    /// LiteLLM: each thinking block of Claude must be unchanged.
    fn check_blocks(&self, message: &Value, index: usize) -> Result<(), Refusal> {
        for (at, block) in list(&message["thinking_blocks"]).iter().enumerate() {
            let path = format!("messages[{index}].thinking_blocks[{at}]");
            let kind = block["type"].as_str().unwrap_or_default();
            let (shown, signed_member) = match kind {
                "thinking" => (block["thinking"].as_str().unwrap_or_default(), "signature"),
                _ => ("", "data"),
            };
            let Some(signer) = self.signer else {
                continue;
            };
            let signature = block[signed_member].as_str().unwrap_or_default();
            let opened = signatures::open(signer, self.variant, signature);
            if opened.is_none_or(|opened| opened.shown != hash(&[shown.as_bytes()])) {
                return Err(invalid(&path, signed_member, kind));
            }
        }
        Ok(())
    }

    /// After a tool result, Claude needs the thinking that made the call.
    fn check_open_loop(&self, request: &ParsedRequest) -> Result<(), Refusal> {
        let claude = request.model().to_lowercase().contains("claude");
        let messages = request.messages();
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

    /// Gemini: in the current turn, the first call of each step needs a signature. Earlier turns
    /// are not checked.
    fn check_calls(&self, request: &ParsedRequest) -> Result<(), Refusal> {
        let signs = signatures::call_signing(self.variant, request.model());
        let model = request.model().to_lowercase();
        let lenient = model.contains("gemini-2") || model.contains("gemini-1");
        let (Some(signer), false) = (self.signer, signs == CallSigning::Never || lenient) else {
            return Ok(());
        };
        let messages = request.messages().iter().enumerate().skip(request.turn());
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
                        let shown = signatures::of_call(name, arguments.unwrap_or_default());
                        let opened = signatures::open(signer, self.variant, &plain(signature));
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

fn signature_of(call: &Value, signs: CallSigning) -> Option<&str> {
    let found = match signs {
        CallSigning::Never => None,
        CallSigning::ExtraContent => {
            let extra = &call["extra_content"];
            let google = extra["google"]["thought_signature"].as_str();
            google.or_else(|| extra["vertex"]["thought_signature"].as_str())
        }
        CallSigning::ProviderFields => {
            let field = call["provider_specific_fields"]["thought_signature"].as_str();
            let id = call["id"].as_str().unwrap_or_default();
            field.or_else(|| id.split_once(ID_SEPARATOR).map(|(_, signature)| signature))
        }
    };
    found.filter(|signature| !signature.is_empty())
}

/// Python clients rewrite signatures in the URL-safe alphabet, which Google accepts too.
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
