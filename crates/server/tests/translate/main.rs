//! The translate lane over real HTTP: clients of one dialect over backends of another, and what
//! goes wrong on the way. The matrix tests that every pair works when nothing goes wrong.

#[path = "../matrix/ag_ui.rs"]
mod ag_ui;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/anthropic.rs"]
mod anthropic;
#[path = "../matrix/chat.rs"]
mod chat;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/gemini.rs"]
mod gemini;
#[path = "../matrix/ollama.rs"]
mod ollama;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/responses.rs"]
mod responses;
#[path = "../matrix/test_client.rs"]
mod test_client;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/upstreams.rs"]
mod upstreams;

mod ag_ui_runs;
mod cache_breakpoints;
mod counts_and_plans;
mod custom_tools;
mod disconnects;
mod dropped_parts;
mod empty_answers;
mod envelopes;
mod fallback;
mod faults;
mod frontend_endpoints;
mod frontend_faults;
mod full_disk;
mod ids;
mod image_details;
mod keep_alive;
mod learnt_settings;
mod logs;
mod losses;
mod nesting;
mod nothing_to_send;
mod ollama_endpoints;
mod paths;
mod policies;
mod prefix;
mod raw_text;
mod reasoning_members;
mod refusals;
mod settings;
mod shutdown;
mod stored_by_backend;
mod stored_responses;
mod stream_reading;
mod strict_settings;
mod summaries;
mod support;
mod unreadable_responses;
mod unsigned_reasoning;
mod usage;
mod vault;
mod websocket;
