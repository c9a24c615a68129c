//! The OpenAPI document, generated from the handlers and types, and the page that shows it. The page
//! loads nothing from elsewhere.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header;
use utoipa::openapi::OpenApi as Document;
use utoipa::{IntoResponses, OpenApi, ToSchema};

use super::{
    accounts, branches, channels, hooks, members, nodes, projects, providers, room_events, rooms,
    runs, tools, turns,
};

const PAGE: &str = include_str!("docs_page/page.html");
const SCRIPT: &str = include_str!("docs_page/page.js");
const STYLE: &str = include_str!("docs_page/page.css");
/// The page may load its own script and style, and read the document.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Throughline conversations",
        description = "Projects, branches, nodes and runs. A key in any of the usual headers \
                       identifies the caller; each key has its own projects. Once a user is \
                       registered, the cookie of a session identifies the caller instead."
    ),
    paths(
        projects::list,
        projects::create,
        projects::read,
        projects::cost,
        projects::change,
        projects::delete,
        projects::restore,
        projects::lease,
        projects::revoke_lease,
        branches::list,
        branches::create,
        branches::change,
        branches::delete,
        branches::restore,
        branches::merge,
        nodes::list,
        nodes::read,
        nodes::change,
        nodes::raw,
        nodes::graph,
        turns::chat,
        turns::edit,
        turns::regenerate,
        turns::preview,
        runs::read,
        runs::events,
        runs::stop,
        providers::list,
        tools::list,
        tools::approve,
        accounts::register,
        accounts::kdf,
        accounts::login,
        accounts::logout,
        accounts::passphrase,
        accounts::recover,
        accounts::session,
        accounts::user,
        channels::list_channels,
        channels::create_channel,
        channels::read_channel,
        channels::change_channel,
        channels::delete_channel,
        rooms::list_rooms,
        rooms::create_room,
        rooms::read_room,
        rooms::change_room,
        rooms::delete_room,
        rooms::bind,
        rooms::unbind,
        rooms::messages,
        rooms::say,
        rooms::room_cost,
        rooms::approve_in_room,
        room_events::room_events,
        room_events::socket,
        hooks::list_hooks,
        hooks::add_hook,
        hooks::remove_hook,
        hooks::dead_calls,
        hooks::replay_call,
        members::list,
        members::add,
        members::remove,
        members::key,
        members::set_next_key,
    ),
    components(schemas(ProblemBody, StreamedEvent))
)]
struct Api;

/// An error (RFC 9457).
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes what `Problem` writes")]
pub(super) struct ProblemBody {
    /// The kind of problem, for programs.
    r#type: String,
    /// The same for all problems of a status.
    title: String,
    /// The status of the answer.
    status: u16,
    /// What is wrong.
    detail: String,
    /// The kind of a failure of the store or of a provider, for programs.
    code: Option<String>,
    /// What the caller can do.
    hint: String,
    /// The wrong member of the request.
    path: Option<String>,
    /// The newest node of the branch, if `expectedHead` is not.
    head: Option<String>,
    /// The run in progress on the branch.
    #[schema(rename = "runId")]
    run_id: Option<String>,
    /// The provider and the model of the branch, if the request names others.
    #[schema(value_type = Option<Object>)]
    lock: Option<()>,
}

/// An event of a stream of server-sent events.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes what readers write")]
pub(super) struct StreamedEvent {
    /// The cursor: the value of `after` or `Last-Event-ID` to continue after this event.
    id: Option<String>,
    /// The type, in the format `sse`.
    event: Option<String>,
    /// JSON in the words of the format, or `[DONE]` at the end of the format `ui`.
    data: Option<String>,
}

/// The errors of every operation.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "describes what `Refusal` writes")]
pub(super) enum Refused {
    /// The request is not valid.
    #[response(status = 400, content_type = "application/problem+json")]
    Invalid(ProblemBody),
    /// There are users, and the request has no valid session; or a passphrase is wrong.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthenticated(ProblemBody),
    /// The caller may not do this. A web page of another origin gets plain text.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemBody),
    /// It does not exist, or belongs to another caller.
    #[response(status = 404, content_type = "application/problem+json")]
    Missing(ProblemBody),
    /// The request does not fit the present state.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(ProblemBody),
    /// The body is larger than `limits.body`.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(ProblemBody),
    /// The request names another host.
    #[response(status = 421, content_type = "text/plain")]
    WrongHost(String),
    /// The project is sealed, and the request has neither its key nor a lease.
    #[response(status = 423, content_type = "application/problem+json")]
    Locked(ProblemBody),
    /// Too many requests are in progress, or there were too many attempts to log in.
    /// `retry-after` says when to try again.
    #[response(status = 429, content_type = "application/problem+json")]
    Busy(ProblemBody),
    /// The store or a backend does not work.
    #[response(status = "5XX", content_type = "application/problem+json")]
    Failed(ProblemBody),
}

/// `GET /api/openapi.json`
pub(super) async fn document() -> Json<Document> {
    Json(Api::openapi())
}

/// `GET /api/docs`: a page that shows the document.
pub(super) async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    (headers, PAGE).into_response()
}

/// `GET /api/docs/page.js`
pub(super) async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT).into_response()
}

/// `GET /api/docs/page.css`
pub(super) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_names_the_run_as_answers_do() {
        let document = serde_json::to_value(Api::openapi()).expect("a document");
        let members = &document["components"]["schemas"]["ProblemBody"]["properties"];
        assert!(members["runId"].is_object() && members["run_id"].is_null(), "{members}");
    }

    #[test]
    fn document_has_settings_values_headers_and_statuses() {
        let document = serde_json::to_value(Api::openapi()).expect("a document");
        let chat = &document["paths"]["/api/projects/{id}/chat"]["post"];
        for request in ["ChatRequest", "EditRequest", "RegenerateRequest"] {
            let schema = document["components"]["schemas"][request].to_string();
            assert!(schema.contains("TurnSettings"), "{schema}");
        }
        let settings = &document["components"]["schemas"]["TurnSettings"]["properties"];
        for setting in ["thinking", "tools", "tool_choice", "max_tokens", "temperature", "stop"] {
            assert!(settings[setting].is_object(), "{setting}");
        }
        let values = |operation: &serde_json::Value, name: &str| {
            let parameters = operation["parameters"].as_array().expect("parameters");
            let found = parameters.iter().find(|parameter| parameter["name"] == name);
            found.expect("the parameter").to_string()
        };
        assert!(values(chat, "format").contains(r#"["ndjson","sse","ag-ui","ui"]"#));
        assert!(values(chat, "kinds").contains(r#"["text","thinking","tools"]"#));
        let nodes = &document["paths"]["/api/projects/{id}/nodes"]["get"];
        assert!(values(nodes, "order").contains(r#"["asc","desc"]"#));
        let headers = &chat["responses"]["200"]["headers"];
        for header in ["x-throughline-run", "x-throughline-node"] {
            assert!(headers[header].is_object(), "{headers}");
        }
        let paths = document["paths"].as_object().expect("paths").values();
        let operations = paths.flat_map(|path| path.as_object().expect("operations").values());
        for operation in operations {
            for status in ["400", "403", "404", "409", "413", "421", "423", "429", "5XX"] {
                assert!(operation["responses"][status].is_object(), "{status} {operation}");
            }
        }
    }

    #[test]
    fn every_schema_that_the_document_names_is_in_it() {
        let document = serde_json::to_value(Api::openapi()).expect("a document");
        let text = document.to_string();
        let names = text.split("\"#/components/schemas/").skip(1);
        let names: Vec<&str> = names.filter_map(|rest| rest.split('"').next()).collect();
        assert!(names.contains(&"ProblemBody"), "{names:?}");
        for name in names {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }

    #[test]
    fn each_operation_has_an_id_of_its_own() {
        let document = serde_json::to_value(Api::openapi()).expect("a document");
        let paths = document["paths"].as_object().expect("paths");
        let operations = paths.values().flat_map(|path| path.as_object().expect("a path").values());
        let mut ids: Vec<&str> =
            operations.map(|operation| operation["operationId"].as_str().expect("an id")).collect();
        assert!(ids.len() > 60, "{ids:?}");
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None);
    }
}
