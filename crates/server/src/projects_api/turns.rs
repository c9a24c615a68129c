//! Turns: chat, edit, regenerate. They answer with the events of the run that they start.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use throughline_conversations::projects::{
    ChatPreview, ChatRequest, EditRequest, RegenerateRequest, StartedRun,
};

use super::call::{Body, Call, Names, Refusal};
use super::openapi::{Refused, StreamedEvent};
use super::stream::{FormatQuery, Reading};

const RUN: HeaderName = HeaderName::from_static("x-throughline-run");
const NODE: HeaderName = HeaderName::from_static("x-throughline-node");
const TIMES: HeaderName = HeaderName::from_static("server-timing");

/// Sends a user message.
#[utoipa::path(
    post,
    operation_id = "chat",
    path = "/api/projects/{id}/chat",
    tag = "turns",
    params(("id" = String, Path, description = "The id of the project"), FormatQuery),
    request_body = ChatRequest,
    responses(
        (
            status = 200,
            description = "The events of the run",
            content((String = "application/x-ndjson"), (StreamedEvent = "text/event-stream")),
            headers(
                ("x-throughline-run" = String, description = "The id of the run"),
                ("x-throughline-node" = String, description = "The id of the node of the answer")
            )
        ),
        Refused
    )
)]
pub(super) async fn chat(
    call: Call,
    Names(id): Names<String>,
    Body(chat): Body<ChatRequest>,
) -> Result<Response, Refusal> {
    let reading = Reading::read(&call)?;
    if !chat.resume.is_empty() {
        let resumed = call.projects().resume(&call.caller, &id, &chat).await?;
        let response = reading.after_event(resumed.after).open(&call, &resumed.run.run_id).await?;
        return Ok(with_names(response, &resumed.run));
    }
    let started = call.projects().chat(&call.caller, &id, chat).await?;
    answer(&call, reading, &started).await
}

/// Edits a user message on a new branch.
#[utoipa::path(
    post,
    operation_id = "edit_message",
    path = "/api/projects/{id}/edit",
    tag = "turns",
    params(("id" = String, Path, description = "The id of the project"), FormatQuery),
    request_body = EditRequest,
    responses(
        (
            status = 200,
            description = "The events of the run",
            content((String = "application/x-ndjson"), (StreamedEvent = "text/event-stream")),
            headers(
                ("x-throughline-run" = String, description = "The id of the run"),
                ("x-throughline-node" = String, description = "The id of the node of the answer")
            )
        ),
        Refused
    )
)]
pub(super) async fn edit(
    call: Call,
    Names(id): Names<String>,
    Body(edit): Body<EditRequest>,
) -> Result<Response, Refusal> {
    let reading = Reading::read(&call)?;
    let started = call.projects().edit(&call.caller, &id, edit).await?;
    answer(&call, reading, &started).await
}

/// Regenerates an answer.
#[utoipa::path(
    post,
    operation_id = "regenerate_answer",
    path = "/api/projects/{id}/regenerate",
    tag = "turns",
    params(("id" = String, Path, description = "The id of the project"), FormatQuery),
    request_body = RegenerateRequest,
    responses(
        (
            status = 200,
            description = "The events of the run",
            content((String = "application/x-ndjson"), (StreamedEvent = "text/event-stream")),
            headers(
                ("x-throughline-run" = String, description = "The id of the run"),
                ("x-throughline-node" = String, description = "The id of the node of the answer")
            )
        ),
        Refused
    )
)]
pub(super) async fn regenerate(
    call: Call,
    Names(id): Names<String>,
    Body(again): Body<RegenerateRequest>,
) -> Result<Response, Refusal> {
    let reading = Reading::read(&call)?;
    let started = call.projects().regenerate(&call.caller, &id, again).await?;
    answer(&call, reading, &started).await
}

/// What a chat turn would send, and why.
#[utoipa::path(
    post,
    operation_id = "preview_request",
    path = "/api/projects/{id}/preview",
    tag = "turns",
    params(("id" = String, Path, description = "The id of the project")),
    request_body = ChatRequest,
    responses(
        (
            status = 200,
            description = "The request that would be sent",
            body = ChatPreview,
            headers(("server-timing" = String, description = "How long its steps took"))
        ),
        Refused
    )
)]
pub(super) async fn preview(
    call: Call,
    Names(id): Names<String>,
    Body(chat): Body<ChatRequest>,
) -> Result<Response, Refusal> {
    let preview = call.projects().preview(&call.caller, &id, chat).await?;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let times = format!(
        "assembly;dur={:.3}, plan;dur={:.3}",
        milliseconds(preview.times.assembly),
        milliseconds(preview.times.plan)
    );
    Ok(([(TIMES, times)], Json(preview)).into_response())
}

/// Answers with the events of a run, from the first one.
async fn answer(call: &Call, reading: Reading, started: &StartedRun) -> Result<Response, Refusal> {
    let response = reading.of_first().open(call, &started.run_id).await?;
    Ok(with_names(response, started))
}

/// Names the run and the node of an answer.
fn with_names(mut response: Response, started: &StartedRun) -> Response {
    for (name, id) in [(RUN, &started.run_id), (NODE, &started.node_id)] {
        if let Ok(value) = HeaderValue::from_str(id) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
