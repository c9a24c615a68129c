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

    /// The kind of the loss, the value that says how much or what was lost, and the reason.
    fn parts(&self) -> (&'static str, LostValue<'_>, Option<&str>) {
        use LostValue::{Count, Part, Setting};
        match self {
            Self::ThinkingOmitted { blocks, reason } => {
                ("thinking_omitted", Count(*blocks), Some(reason.word()))
            }
            Self::MessageFilled { messages } => {
                ("message_filled", Count(*messages), Some(LossReason::Empty.as_str()))
            }
            Self::SettingAdapted { setting, reason } => {
                ("setting_adapted", Setting(setting.as_str()), Some(reason.as_str()))
            }
            Self::PartOmitted { part, reason } => {
                ("part_omitted", Part(part.as_str()), Some(reason.as_str()))
            }
            Self::ToolLoopClosed { calls } => {
                ("tool_loop_closed", Count(*calls), Some(LossReason::OpenToolLoop.as_str()))
            }
            Self::ToolIdRepeated { ids } => ("tool_id_repeated", Count(*ids), None),
            Self::ReasoningUnclosed => ("reasoning_unclosed", Count(1), None),
        }
    }

    /// The setting or part that this loss is about, if the caller gets something else without it.
    /// Settings that only tune the answer are none of these.
    pub fn changed_result(&self) -> Option<&LossSubject> {
        let (subject, reason) = match self {
            Self::SettingAdapted { setting, reason } => (setting, reason),
            Self::PartOmitted { part, reason } => (part, reason),
            _ => return None,
        };
        let changes = match subject {
            LossSubject::N | LossSubject::Logprobs | LossSubject::Modalities => true,
            // What a provider stores is a part of what the model has to read.
            LossSubject::MediaFile
            | LossSubject::CachedContent
            | LossSubject::StoredPrompt
            | LossSubject::StoredAudio
            | LossSubject::Container => true,
            // A simpler schema still gives the same shape.
            LossSubject::Output => *reason != LossReason::Schema,
            LossSubject::Stop => *reason != LossReason::Empty,
            _ => false,
        };
        changes.then_some(subject)
    }

    /// The kind, as in headers, reports, logs and metrics.
    pub fn kind(&self) -> &'static str {
        self.parts().0
    }

    /// The number of the loss: of blocks, messages, calls or ids. A part or a setting counts as one.
    /// Headers, reports, logs and metrics all show this number.
    pub fn count(&self) -> usize {
        match self.parts().1 {
            LostValue::Count(count) => count,
            LostValue::Part(_) | LostValue::Setting(_) => 1,
        }
    }

    /// Adds a loss to a list. A loss of the same kind and reason becomes one with the sum of both
    /// numbers; a part or a setting is listed once.
    pub fn add(losses: &mut Vec<Self>, loss: Self) {
        for known in losses.iter_mut() {
            let (total, more) = match (known, &loss) {
                (
                    Self::ThinkingOmitted { blocks: total, reason },
                    Self::ThinkingOmitted { blocks: more, reason: same },
                ) if reason == same => (total, more),
                (
                    Self::MessageFilled { messages: total },
                    Self::MessageFilled { messages: more },
                )
                | (Self::ToolLoopClosed { calls: total }, Self::ToolLoopClosed { calls: more })
                | (Self::ToolIdRepeated { ids: total }, Self::ToolIdRepeated { ids: more }) => {
                    (total, more)
                }
                (known, loss) if known == loss => return,
                _ => continue,
            };
            *total += more;
            return;
        }
        losses.push(loss);
    }

    /// The same losses, each listed once.
    pub fn merged(losses: Vec<Self>) -> Vec<Self> {
        let mut merged = Vec::with_capacity(losses.len());
        for loss in losses {
            Self::add(&mut merged, loss);
        }
        merged
    }

    /// The losses as one header value: `thinking_omitted=2;reason=origin, ...`.
    pub fn header(losses: &[Self]) -> String {
        losses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// How much or what was lost.
#[derive(Clone, Copy, Debug)]
enum LostValue<'a> {
    Count(usize),
    Part(&'a str),
    Setting(&'a str),
}

impl fmt::Display for LostValue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(formatter),
            Self::Part(name) | Self::Setting(name) => name.fmt(formatter),
        }
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
        match value {
            LostValue::Count(count) => map.serialize_entry("count", &count)?,
            LostValue::Part(part) => map.serialize_entry("part", part)?,
            LostValue::Setting(setting) => map.serialize_entry("setting", setting)?,
        }
        if let Some(reason) = reason {
            map.serialize_entry("reason", reason)?;
        }
        map.end()
    }
}

/// A loss in its form for reports: a `count`, or the name of a `part` or `setting`.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Deserialize)]
#[cfg_attr(test, ts(rename = "Loss", optional_fields))]
pub(crate) struct LossReport {
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
    fn only_some_settings_change_what_the_caller_gets() {
        let adapted =
            |setting, reason| Loss::SettingAdapted { setting, reason }.changed_result().is_some();
        assert!(adapted(LossSubject::N, LossReason::OneAnswer));
        assert!(adapted(LossSubject::Output, LossReason::JsonWithoutSchema));
        assert!(!adapted(LossSubject::Output, LossReason::Schema));
        assert!(!adapted(LossSubject::Temperature, LossReason::Range));
        let omitted = |part, reason| Loss::of_part(part, reason).changed_result().is_some();
        assert!(omitted(LossSubject::Stop, LossReason::NoPlace));
        assert!(!omitted(LossSubject::Stop, LossReason::Empty));
        assert!(!omitted(LossSubject::Seed, LossReason::NoPlace));
        assert!(omitted(LossSubject::MediaFile, LossReason::ForeignFile));
        assert!(!omitted(LossSubject::Media, LossReason::NoPlace));
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
    fn merged_losses_have_one_number_for_each_kind_and_reason() {
        let thinking = |blocks, reason| Loss::ThinkingOmitted { blocks, reason };
        let media = || Loss::of_part(LossSubject::Media, LossReason::NoPlace);
        let losses = Loss::merged(vec![
            thinking(2, Reason::Origin),
            media(),
            Loss::MessageFilled { messages: 1 },
            thinking(1, Reason::Cut),
            thinking(3, Reason::Origin),
            Loss::MessageFilled { messages: 1 },
            media(),
        ]);
        assert_eq!(
            Loss::header(&losses),
            "thinking_omitted=5;reason=origin, part_omitted=media;reason=no_place, \
             message_filled=2;reason=empty, thinking_omitted=1;reason=cut"
        );
        assert_eq!(losses.iter().map(Loss::count).collect::<Vec<_>>(), [5, 1, 2, 1]);
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
