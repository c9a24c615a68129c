//! Enums that a configuration writes as strings. Most of them are the gateway's own, so that a value
//! needs no translation on its way there.

use std::fmt;

use throughline_codec::dialects::UPSTREAM;
use throughline_codec::text::{OnError, ReasoningFormat};
use throughline_conversations::projects::{PreviousResponse, ProjectMode};
use throughline_conversations::users::RegistrationRule;
use throughline_gateway::backend::{Cache, Compat, Pricing, Replay};
use throughline_gateway::settings::{Policy, ToolThinking, Unknown};

use super::settings::{Dialect, Format, Level, PASSTHROUGH, Passthrough, ReasoningField};

/// An enum that is written as a string in the configuration.
pub trait ConfigEnum: Copy + 'static {
    /// The value of the first name. It replaces a value that cannot be read; a configuration
    /// with such a value is never used.
    const FIRST: Self;

    /// All names, in the order of the documentation.
    fn names() -> Vec<&'static str>;

    /// The value of a name.
    fn from_name(name: &str) -> Option<Self>;

    /// The name of a value.
    fn name(self) -> &'static str;
}

/// Implements [`ConfigEnum`] by a table, so that schema, reader and documentation agree.
macro_rules! config_enum {
    ($type:ident { $first:ident = $first_name:literal $(, $variant:ident = $name:literal)* $(,)? }) => {
        impl ConfigEnum for $type {
            const FIRST: Self = Self::$first;

            fn names() -> Vec<&'static str> {
                vec![$first_name $(, $name)*]
            }

            fn from_name(name: &str) -> Option<Self> {
                match name {
                    $first_name => Some(Self::$first),
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            fn name(self) -> &'static str {
                match self {
                    Self::$first => $first_name,
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

config_enum!(Level {
    Trace = "trace",
    Debug = "debug",
    Info = "info",
    Warn = "warn",
    Error = "error",
});
config_enum!(Format { Text = "text", Json = "json" });
config_enum!(ReasoningField {
    Reasoning = "reasoning",
    ReasoningContent = "reasoning_content",
});
config_enum!(Policy { Origin = "origin", Session = "session" });
config_enum!(Unknown { Try = "try", Drop = "drop" });
config_enum!(ToolThinking {
    Auto = "auto",
    Sequential = "sequential",
    Interleaved = "interleaved",
});
config_enum!(Replay { Verbatim = "verbatim", LatestTurn = "latest_turn", None = "none" });
config_enum!(Cache { Auto = "auto", Client = "client", Off = "off" });
config_enum!(Pricing { List = "list", Free = "free" });
config_enum!(PreviousResponse { Off = "off", Branch = "branch", Fork = "fork" });
config_enum!(ProjectMode { Managed = "managed", Sealed = "sealed" });
config_enum!(RegistrationRule { Open = "open", First = "first", Closed = "closed" });
config_enum!(ReasoningFormat { Split = "split", Raw = "raw", None = "none" });
config_enum!(OnError { Error = "error", Text = "text" });

/// The codec's table of dialects, and the simulator.
impl ConfigEnum for Dialect {
    const FIRST: Self = Self::DEFAULT;

    fn names() -> Vec<&'static str> {
        let upstreams = UPSTREAM.iter().map(|dialect| dialect.name());
        upstreams.chain([Self::SIMULATOR.0]).collect()
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::names().into_iter().find(|known| *known == name).map(Self)
    }

    fn name(self) -> &'static str {
        self.0
    }
}

/// `thinking_compat.mode`. The budget is a key of its own and is filled in by the reader.
impl ConfigEnum for Compat {
    const FIRST: Self = Self::Budget(None);

    fn names() -> Vec<&'static str> {
        vec!["budget", "adaptive", "off"]
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "budget" => Some(Self::Budget(None)),
            "adaptive" => Some(Self::Adaptive),
            "off" => Some(Self::Off),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Budget(_) => "budget",
            Self::Adaptive => "adaptive",
            Self::Off => "off",
        }
    }
}

impl ConfigEnum for Passthrough {
    const FIRST: Self = Self;

    fn names() -> Vec<&'static str> {
        vec![PASSTHROUGH]
    }

    fn from_name(name: &str) -> Option<Self> {
        (name == PASSTHROUGH).then_some(Self)
    }

    fn name(self) -> &'static str {
        PASSTHROUGH
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: ConfigEnum + PartialEq + fmt::Debug>() {
        assert_eq!(T::from_name(T::names()[0]), Some(T::FIRST));
        for name in T::names() {
            assert_eq!(T::from_name(name).map(T::name), Some(name));
        }
        assert_eq!(T::from_name(""), None);
    }

    #[test]
    fn every_name_has_its_own_value() {
        check::<Dialect>();
        check::<Level>();
        check::<Format>();
        check::<ReasoningField>();
        check::<Policy>();
        check::<Unknown>();
        check::<ToolThinking>();
        check::<Replay>();
        check::<Cache>();
        check::<ReasoningFormat>();
        check::<OnError>();
        check::<Compat>();
        check::<Passthrough>();
        check::<PreviousResponse>();
        check::<ProjectMode>();
        check::<RegistrationRule>();
    }
}
