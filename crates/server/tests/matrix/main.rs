//! Every client dialect over every upstream dialect, against strict simulators: nothing is refused, the
//! client sees the same words whatever the pair, and what is lost is exactly what the table says.

mod ag_ui;
mod anthropic;
mod chat;
mod gemini;
mod lines;
mod ollama;
mod responses;
mod scenarios;
mod speaker;
mod table;
mod ui_stream;
mod upstreams;
