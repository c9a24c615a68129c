//! Turns: chat, edit, regenerate. They answer with the events of the run that they start.

use axum::Json;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use throughline_conversations::projects::{
    ChatPreview, ChatRequest, EditRequest, RegenerateRequest, StartedRun,
};

use super::call::{Body, Call, Names, Refusal};
use super::stream::Reading;

const RUN: HeaderName = HeaderName::from_static("x-throughline-run");
const NODE: HeaderName = HeaderName::from_static("x-throughline-node");

/// `POST /api/projects/{id}/chat`: says something on a branch.
pub(super) async fn chat(
    call: Call,
    Names(id): Names<String>,
    Body(chat): Body<ChatRequest>,
) -> Result<Response, Refusal> {
    let reading = Reading::read(&call)?;
    let started = call.projects().chat(&call.caller, &id, chat).await?;
    answer(&call, reading, &started).await
}

/// `POST /api/projects/{id}/edit`: says something else than before, on a new branch.
pub(super) async fn edit(
    call: Call,
    Names(id): Names<String>,
    Body(edit): Body<EditRequest>,
) -> Result<Response, Refusal> {
    let reading = Reading::read(&call)?;
    let started = call.projects().edit(&call.caller, &id, edit).await?;
    answer(&call, reading, &started).await
}

/// `POST /api/projects/{id}/regenerate`: asks for another answer to the same words.
pub(super) async fn regenerate(
    call: Call,
    Names(id): Names<String>,
    Body(again): Body<RegenerateRequest>,
) -> Result<Response, Refusal> {
    let reading = Reading::read(&call)?;
    let started = call.projects().regenerate(&call.caller, &id, again).await?;
    answer(&call, reading, &started).await
}

/// `POST /api/projects/{id}/preview`: what a chat turn would send, and why.
pub(super) async fn preview(
    call: Call,
    Names(id): Names<String>,
    Body(chat): Body<ChatRequest>,
) -> Result<Json<ChatPreview>, Refusal> {
    Ok(Json(call.projects().preview(&call.caller, &id, chat).await?))
}

/// Answers with the events of a run, from the first one.
async fn answer(call: &Call, reading: Reading, started: &StartedRun) -> Result<Response, Refusal> {
    let mut response = reading.from_start().open(call, &started.run_id).await?;
    for (name, id) in [(RUN, &started.run_id), (NODE, &started.node_id)] {
        if let Ok(value) = HeaderValue::from_str(id) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}
