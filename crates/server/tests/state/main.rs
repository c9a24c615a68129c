//! State that is not in the request: message threads, compaction, conversations that are stored
//! here, and the planted fact that none of them may lose.

#[allow(dead_code, reason = "the matrix and these tests use a part each")]
#[path = "../matrix/anthropic.rs"]
mod anthropic;
#[path = "../matrix/chat.rs"]
mod chat;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/gemini.rs"]
mod gemini;
#[path = "../matrix/ollama.rs"]
mod ollama;
#[allow(dead_code, reason = "the matrix and these tests use a part each")]
#[path = "../matrix/responses.rs"]
mod responses;
#[allow(dead_code, reason = "the tests of the translate lane use all of it")]
#[path = "../translate/support.rs"]
mod support;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/test_client.rs"]
mod test_client;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/upstreams.rs"]
mod upstreams;

mod compaction;
mod planted_fact;
mod threads;
