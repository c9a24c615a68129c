//! What the gateway has to know about a client dialect, as data.

use throughline_canonical::LossSubject;

use super::Operation;
use super::custom_tools::CustomToolFormat;

/// The code of an error about a member that the backend cannot honour, in dialects that have codes.
pub const UNSUPPORTED_PARAMETER: &str = "unsupported_parameter";

/// A client dialect. Many fields: each one is a fact that the gateway needs.
#[derive(Clone, Copy, Debug)]
pub struct ClientDefaults {
    /// The name in paths of the corpus, in configuration and in reports.
    pub name: &'static str,
    /// The paths without parameters, and what they ask for. The first one generates an answer.
    pub paths: &'static [(&'static str, Operation)],
    /// A request without a thinking setting asks the model to think.
    pub thinks: bool,
    /// A request without a thinking setting shows the thinking of models that think anyway.
    pub shows_thinking: bool,
    /// All clients send the ids of tool calls back, with the calls and with the results.
    pub returns_call_ids: bool,
    /// A signature belongs to the text of its block. If not, clients may drop parts of the text.
    pub signature_binds_text: bool,
    /// Clients drop thinking that has no signature.
    pub wants_signed_thinking: bool,
    /// The client keeps whole turns itself, with signatures and makers, and brings blocks back in
    /// envelopes. It gets the provider's own signatures, and nothing is stored for it.
    pub keeps_turns: bool,
    /// Clients expect a signature on the first call of a reply, and invent one if it is missing.
    pub wants_signed_calls: bool,
    /// How the dialect writes custom tools (tools with free-text input), if it has them.
    pub custom_tools: Option<&'static CustomToolFormat>,
    /// Replies of servers of this dialect may need [`Session::repair`](super::Session::repair).
    pub repairs_replies: bool,
    /// The members in which clients ask for what a loss is about. A subject that is not here is
    /// named by its term.
    pub members: &'static [(LossSubject, &'static str)],
    /// The member that refers to a conversation that is stored elsewhere, and the code of the error that
    /// makes clients send the whole conversation instead. `None` if the dialect has no such member.
    pub missing_state: Option<(&'static str, &'static str)>,
    /// The upstream dialects whose errors the client can read unchanged.
    pub reads_errors_of: &'static [&'static str],
    /// How often a request is tried again at least. Other clients retry themselves.
    pub retries: u32,
    /// Extra headers of a streamed reply.
    pub stream_headers: &'static [(&'static str, &'static str)],
    /// The `content-type` of a fault that replaces a reply.
    pub fault_type: &'static str,
}

impl ClientDefaults {
    /// The member in which clients ask for what a loss is about.
    pub fn member<'a>(&self, subject: &'a LossSubject) -> &'a str {
        let named = self.members.iter().find(|(known, _)| known == subject);
        named.map_or(subject.as_str(), |(_, member)| member)
    }

    /// The values of most dialects of providers.
    pub const PLAIN: Self = Self {
        name: "",
        paths: &[],
        thinks: false,
        shows_thinking: false,
        returns_call_ids: true,
        signature_binds_text: true,
        wants_signed_thinking: false,
        keeps_turns: false,
        wants_signed_calls: false,
        custom_tools: None,
        repairs_replies: false,
        members: &[],
        missing_state: None,
        reads_errors_of: &[],
        retries: 0,
        stream_headers: &[],
        fault_type: "application/json",
    };
    /// The values of most dialects of front ends. Proxies must not buffer their streams.
    pub const FRONT_END: Self = Self {
        shows_thinking: true,
        stream_headers: &[("x-accel-buffering", "no")],
        ..Self::PLAIN
    };
}
