//! Losses: what a translation could not carry. Nothing is dropped silently: every crossing returns
//! its losses.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::{LossReason, LossSubject, Reason};

/// One loss.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "LossReport")]
pub enum Loss {
    /// Thinking blocks were not sent.
    ThinkingOmitted {
        /// Number of blocks.
        blocks: usize,
        /// The reason.
        reason: Reason,
    },
    /// A message with nothing but dropped thinking got a placeholder text.
    MessageFilled {
        /// Number of messages.
        messages: usize,
    },
    /// A setting was changed so that the target accepts the request.
    SettingAdapted {
        /// The name of the setting.
        setting: LossSubject,
        /// The reason.
        reason: LossReason,
    },
    /// The target's dialect cannot express a part of the request.
    PartOmitted {
        /// The name of the part.
        part: LossSubject,
        /// The reason.
        reason: LossReason,
    },
    /// The tool calls and results of an open tool loop were sent as text.
    ToolLoopClosed {
        /// Number of calls.
        calls: usize,
    },
    /// A tool-call id occurs more than once in the conversation; some clients drop such calls.
    ToolIdRepeated {
        /// Number of repetitions.
        ids: usize,
    },
    /// The model's template opens a reasoning block, and the model stopped without closing it. Its
    /// text was delivered as the answer.
    ReasoningUnclosed,
}

/// A translated value and its losses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lossy<T> {
    /// The value.
    pub value: T,
    /// The losses.
    pub losses: Vec<Loss>,
}

impl<T> Lossy<T> {
    /// A value without losses.
    pub fn whole(value: T) -> Self {
        Self { value, losses: Vec::new() }
    }
}

impl Loss {
    /// The loss of a part.
    pub fn of_part(part: LossSubject, reason: LossReason) -> Self {
        Self::PartOmitted { part, reason }
    }

    fn parts(&self) -> (&'static str, String, Option<&str>) {
        match self {
            Self::ThinkingOmitted { blocks, reason } => {
                ("thinking_omitted", blocks.to_string(), Some(reason.word()))
            }
            Self::MessageFilled { messages } => {
                ("message_filled", messages.to_string(), Some(LossReason::Empty.as_str()))
            }
            Self::SettingAdapted { setting, reason } => {
                ("setting_adapted", setting.as_str().to_owned(), Some(reason.as_str()))
            }
            Self::PartOmitted { part, reason } => {
                ("part_omitted", part.as_str().to_owned(), Some(reason.as_str()))
            }
            Self::ToolLoopClosed { calls } => {
                ("tool_loop_closed", calls.to_string(), Some(LossReason::OpenToolLoop.as_str()))
            }
            Self::ToolIdRepeated { ids } => ("tool_id_repeated", ids.to_string(), None),
            Self::ReasoningUnclosed => ("reasoning_unclosed", "1".to_owned(), None),
        }
    }

    /// How many thinking blocks were left out.
    pub fn omitted_blocks(losses: &[Self]) -> usize {
        let blocks = losses.iter().map(|loss| match loss {
            Self::ThinkingOmitted { blocks, .. } => *blocks,
            _ => 0,
        });
        blocks.sum()
    }

    /// The losses as one header value: `thinking_omitted=2;reason=origin, ...`.
    pub fn header(losses: &[Self]) -> String {
        losses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, value, reason) = self.parts();
        write!(formatter, "{kind}={value}")?;
        match reason {
            Some(reason) => write!(formatter, ";reason={reason}"),
            None => Ok(()),
        }
    }
}

/// The form in reports: `{"kind":"thinking_omitted","count":2,"reason":"origin"}`.
impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let (kind, value, reason) = self.parts();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", kind)?;
        match value.parse::<usize>() {
            Ok(count) => map.serialize_entry("count", &count)?,
            Err(_) if matches!(self, Self::PartOmitted { .. }) => {
                map.serialize_entry("part", &value)?;
            }
            Err(_) => map.serialize_entry("setting", &value)?,
        }
        if let Some(reason) = reason {
            map.serialize_entry("reason", reason)?;
        }
        map.end()
    }
}

/// A loss as it is read back from its form in reports.
#[derive(Deserialize)]
struct LossReport {
    kind: String,
    count: Option<usize>,
    part: Option<String>,
    setting: Option<String>,
    reason: Option<String>,
}

impl TryFrom<LossReport> for Loss {
    type Error = String;

    fn try_from(report: LossReport) -> Result<Self, String> {
        let LossReport { kind, count, part, setting, reason } = report;
        let known = |reason: &Option<String>| LossReason::find(reason.as_deref()?);
        let loss = match (kind.as_str(), count, part.or(setting)) {
            ("thinking_omitted", Some(blocks), _) => reason
                .and_then(|reason| serde_json::from_value(reason.into()).ok())
                .map(|reason| Self::ThinkingOmitted { blocks, reason }),
            ("message_filled", Some(messages), _) => Some(Self::MessageFilled { messages }),
            ("setting_adapted", _, Some(setting)) => known(&reason).map(|reason| {
                Self::SettingAdapted { setting: LossSubject::named(&setting), reason }
            }),
            ("part_omitted", _, Some(part)) => known(&reason)
                .map(|reason| Self::PartOmitted { part: LossSubject::named(&part), reason }),
            ("tool_loop_closed", Some(calls), _) => Some(Self::ToolLoopClosed { calls }),
            ("tool_id_repeated", Some(ids), _) => Some(Self::ToolIdRepeated { ids }),
            ("reasoning_unclosed", ..) => Some(Self::ReasoningUnclosed),
            _ => None,
        };
        loss.ok_or_else(|| format!("`{kind}` is not a known loss, or lacks a member"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_form_one_header() {
        let losses = [
            Loss::ThinkingOmitted { blocks: 2, reason: Reason::Origin },
            Loss::SettingAdapted {
                setting: LossSubject::Thinking,
                reason: LossReason::OpenToolLoop,
            },
        ];
        assert_eq!(
            Loss::header(&losses),
            "thinking_omitted=2;reason=origin, setting_adapted=thinking;reason=open_tool_loop"
        );
    }

    #[test]
    fn report_of_a_loss_is_read_back() {
        let losses = [
            Loss::ThinkingOmitted { blocks: 2, reason: Reason::Origin },
            Loss::MessageFilled { messages: 1 },
            Loss::SettingAdapted {
                setting: LossSubject::Temperature,
                reason: LossReason::Thinking,
            },
            Loss::of_part(LossSubject::named("verbosity"), LossReason::NoPlace),
            Loss::ToolLoopClosed { calls: 3 },
            Loss::ToolIdRepeated { ids: 4 },
            Loss::ReasoningUnclosed,
        ];
        for loss in losses {
            let report = serde_json::to_string(&loss).unwrap();
            assert_eq!(serde_json::from_str::<Loss>(&report).unwrap(), loss, "{report}");
        }
    }

    #[test]
    fn name_that_is_not_a_plain_word_stays_out_of_headers() {
        for (name, part) in [
            ("server_tool_use", "server_tool_use"),
            ("a b", "block"),
            ("a\r\nx: y", "block"),
            ("a,b=c", "block"),
            ("", "block"),
        ] {
            assert_eq!(
                Loss::of_part(LossSubject::named(name), LossReason::ForeignDialect).to_string(),
                format!("part_omitted={part};reason=foreign_dialect")
            );
        }
    }
}
