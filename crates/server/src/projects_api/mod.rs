//! The conversation API under `/api`. The handlers are thin: [`throughline_conversations::projects`]
//! does the work.
//!
//! - `call` reads requests and writes errors, `visitor` finds out who sends them;
//! - `projects`, `branches`, `nodes`, `turns`, `runs`, `tools`, `providers`, `accounts`, `members`: the handlers, by noun;
//! - `channels`, `rooms`, `room_events`, `hooks`: those of rooms;
//! - `stream` writes the events of a run in the format that the caller wants;
//! - `openapi` describes all of them.

mod accounts;
mod branches;
mod call;
mod channels;
mod hooks;
mod members;
mod nodes;
mod openapi;
mod projects;
mod providers;
mod room_events;
mod rooms;
mod runs;
mod stream;
mod tools;
mod turns;
mod visitor;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::{delete, get, patch, post};
use throughline_canonical::FaultKind;
use throughline_conversations::projects::problem::Problem;

use self::call::Refusal;
use crate::wiring::App;

/// The routes under `/api`. Ollama's paths there are not among them.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .nest("/api/projects", project_routes())
        .nest("/api/runs", run_routes())
        .nest("/api/channels", channel_routes())
        .nest("/api/rooms", room_routes())
        .nest("/api/auth", auth_routes())
        .route("/api/users/{name}", get(accounts::user))
        .route("/api/providers", get(providers::list))
        .route("/api/tools", get(tools::list))
        .route("/api/openapi.json", get(openapi::document))
        .route("/api/docs", get(openapi::page))
        .route("/api/docs/page.js", get(openapi::script))
        .route("/api/docs/page.css", get(openapi::style))
        .method_not_allowed_fallback(wrong_method)
}

fn project_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(projects::list).post(projects::create))
        .route("/{id}", get(projects::read).patch(projects::change).delete(projects::delete))
        .route("/{id}/restore", post(projects::restore))
        .route("/{id}/cost", get(projects::cost))
        .route("/{id}/lease", post(projects::lease).delete(projects::revoke_lease))
        .route("/{id}/branches", get(branches::list).post(branches::create))
        .route("/{id}/branches/{name}", patch(branches::change).delete(branches::delete))
        .route("/{id}/branches/{name}/restore", post(branches::restore))
        .route("/{id}/nodes", get(nodes::list))
        .route("/{id}/nodes/{node}", get(nodes::read).patch(nodes::change))
        .route("/{id}/nodes/{node}/raw", get(nodes::raw))
        .route("/{id}/graph", get(nodes::graph))
        .route("/{id}/chat", post(turns::chat))
        .route("/{id}/edit", post(turns::edit))
        .route("/{id}/regenerate", post(turns::regenerate))
        .route("/{id}/preview", post(turns::preview))
        .route("/{id}/merge", post(branches::merge))
        .route("/{id}/members", get(members::list).post(members::add))
        .route("/{id}/members/{name}", delete(members::remove))
        .route("/{id}/key", get(members::key).put(members::set_next_key))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
}

fn run_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/{id}", get(runs::read))
        .route("/{id}/events", get(runs::events))
        .route("/{id}/stop", post(runs::stop))
        .route("/{id}/approvals/{call}", post(tools::approve))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
}

fn channel_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(channels::list_channels).post(channels::create_channel))
        .route(
            "/{id}",
            get(channels::read_channel)
                .patch(channels::change_channel)
                .delete(channels::delete_channel),
        )
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
}

fn room_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(rooms::list_rooms).post(rooms::create_room))
        .route("/{id}", get(rooms::read_room).patch(rooms::change_room).delete(rooms::delete_room))
        .route("/{id}/channels", post(rooms::bind))
        .route("/{id}/channels/{channel}", delete(rooms::unbind))
        .route("/{id}/messages", get(rooms::messages).post(rooms::say))
        .route("/{id}/events", get(room_events::room_events))
        .route("/{id}/ws", get(room_events::socket))
        .route("/{id}/cost", get(rooms::room_cost))
        .route("/{id}/approvals/{call}", post(rooms::approve_in_room))
        .route("/{id}/hooks", get(hooks::list_hooks).post(hooks::add_hook))
        .route("/{id}/hooks/dead", get(hooks::dead_calls))
        .route("/{id}/hooks/dead/{call}/replay", post(hooks::replay_call))
        .route("/{id}/hooks/{hook}", delete(hooks::remove_hook))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
}

fn auth_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/register", post(accounts::register))
        .route("/kdf", get(accounts::kdf))
        .route("/login", post(accounts::login))
        .route("/logout", post(accounts::logout))
        .route("/passphrase", post(accounts::passphrase))
        .route("/recover", post(accounts::recover))
        .route("/session", get(accounts::session))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
}

/// Answers 405. The header `allow` names the methods of the path.
async fn wrong_method(request: Request) -> Refusal {
    let (method, path) = (request.method(), call::full_path(&request));
    let message = format!("`{path}` does not accept {method}");
    let problem = Problem::new(FaultKind::WrongMethod, "wrong-method", message);
    problem.hint("the header `allow` lists the methods of this path").into()
}

async fn unknown_path(request: Request) -> Refusal {
    let message = format!("no such path `{}`", call::full_path(&request));
    let problem = Problem::new(FaultKind::NotFound, "no-such-path", message);
    problem.hint("/api/docs lists all paths").into()
}
