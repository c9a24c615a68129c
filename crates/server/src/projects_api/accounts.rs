//! Users: `/api/auth` and `/api/users`.

use axum::Json;
use axum::extract::Query;
use axum::response::{AppendHeaders, IntoResponse, Response};
use http::{StatusCode, header};
use serde::Deserialize;
use throughline_canonical::Fault;
use throughline_conversations::users::wire::{
    KdfSettings, Login, PassphraseChange, PublicUser, Recovery, Registration, UserView,
};
use throughline_conversations::users::{LoggedIn, Recovered};
use utoipa::IntoParams;

use super::call::{Body, Call, Names, Refusal};
use super::openapi::Refused;
use super::visitor::Visitor;

/// Answers about keys must not stay in a cache.
const NO_STORE: (header::HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

/// Registers a user. It does not log in.
#[utoipa::path(
    post,
    operation_id = "register_user",
    path = "/api/auth/register",
    tag = "users",
    request_body = Registration,
    responses((status = 201, description = "The user", body = PublicUser), Refused)
)]
pub(super) async fn register(
    visitor: Visitor,
    Body(new): Body<Registration>,
) -> Result<impl IntoResponse, Refusal> {
    let user = visitor.app.users.register(&visitor.address, new).await?;
    Ok((StatusCode::CREATED, Json(user)))
}

/// Whose settings to read.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct KdfQuery {
    /// The name.
    name: String,
}

/// How a user's passphrase is stretched. For an unknown name the answer is made up.
#[utoipa::path(
    get,
    operation_id = "read_kdf",
    path = "/api/auth/kdf",
    tag = "users",
    params(KdfQuery),
    responses((status = 200, description = "The settings", body = KdfSettings), Refused)
)]
pub(super) async fn kdf(visitor: Visitor, uri: http::Uri) -> Result<Response, Refusal> {
    let read = Query::<KdfQuery>::try_from_uri(&uri);
    let Query(query) = read.map_err(|error| Fault::at("query", error))?;
    let settings = visitor.app.users.kdf(&visitor.address, &query.name).await?;
    Ok(([NO_STORE], Json(settings)).into_response())
}

/// Logs in: sets the session's cookie and returns the wrapped keys.
#[utoipa::path(
    post,
    operation_id = "log_in",
    path = "/api/auth/login",
    tag = "users",
    request_body = Login,
    responses((status = 200, description = "The user's wrapped keys", body = UserView), Refused)
)]
pub(super) async fn login(visitor: Visitor, Body(login): Body<Login>) -> Result<Response, Refusal> {
    let logged_in = visitor.app.users.login(&visitor.address, login).await?;
    Ok(answer(&visitor, logged_in))
}

/// Logs out. It succeeds without a session too.
#[utoipa::path(
    post,
    operation_id = "log_out",
    path = "/api/auth/logout",
    tag = "users",
    responses((status = 204, description = "The session has ended"), Refused)
)]
pub(super) async fn logout(visitor: Visitor) -> Result<impl IntoResponse, Refusal> {
    if let Some(token) = &visitor.token {
        visitor.app.users.logout(token).await?;
        visitor.app.projects.end_leases_of_session(token.hash());
    }
    Ok((StatusCode::NO_CONTENT, AppendHeaders([(header::SET_COOKIE, visitor.no_cookie())])))
}

/// Sets a new passphrase. The user's other sessions end.
#[utoipa::path(
    post,
    operation_id = "change_passphrase",
    path = "/api/auth/passphrase",
    tag = "users",
    request_body = PassphraseChange,
    responses((status = 200, description = "The user's wrapped keys", body = UserView), Refused)
)]
pub(super) async fn passphrase(
    visitor: Visitor,
    Body(change): Body<PassphraseChange>,
) -> Result<Response, Refusal> {
    let users = &visitor.app.users;
    let session = users.session(visitor.token.as_ref()).await?;
    let view = users.change_passphrase(&visitor.address, &session, change).await?;
    visitor.app.projects.end_leases_of_user(&session.user);
    Ok(([NO_STORE], Json(view)).into_response())
}

/// Proves a recovery code. With a new passphrase it also sets that one, ends all sessions of the user
/// and logs in.
#[utoipa::path(
    post,
    operation_id = "recover_user",
    path = "/api/auth/recover",
    tag = "users",
    request_body = Recovery,
    responses((status = 200, description = "The user's wrapped keys", body = UserView), Refused)
)]
pub(super) async fn recover(
    visitor: Visitor,
    Body(request): Body<Recovery>,
) -> Result<Response, Refusal> {
    match visitor.app.users.recover(&visitor.address, request).await? {
        Recovered::Opened(view) => Ok(([NO_STORE], Json(view)).into_response()),
        Recovered::Changed(logged_in) => {
            visitor.app.projects.end_leases_of_user(&logged_in.user);
            Ok(answer(&visitor, logged_in))
        }
    }
}

/// The session of the request.
#[utoipa::path(
    get,
    operation_id = "read_session",
    path = "/api/auth/session",
    tag = "users",
    responses((status = 200, description = "The user's wrapped keys", body = UserView), Refused)
)]
pub(super) async fn session(visitor: Visitor) -> Result<Response, Refusal> {
    let users = &visitor.app.users;
    let session = users.session(visitor.token.as_ref()).await?;
    Ok(([NO_STORE], Json(users.view(&session).await?)).into_response())
}

/// The public key of a user, to share a chat key.
#[utoipa::path(
    get,
    operation_id = "read_user",
    path = "/api/users/{name}",
    tag = "users",
    params(("name" = String, Path, description = "The name of the user")),
    responses((status = 200, description = "The user", body = PublicUser), Refused)
)]
pub(super) async fn user(
    call: Call,
    Names(name): Names<String>,
) -> Result<Json<PublicUser>, Refusal> {
    Ok(Json(call.app.users.public(&name).await?))
}

fn answer(visitor: &Visitor, logged_in: LoggedIn) -> Response {
    let LoggedIn { view, token, lifetime, .. } = logged_in;
    let cookie = visitor.cookie(&token, lifetime);
    (AppendHeaders([(header::SET_COOKIE, cookie)]), [NO_STORE], Json(view)).into_response()
}
