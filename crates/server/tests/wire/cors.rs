//! Pages on other origins: which of them may use this server, and what their browsers are told.

use http::Method;

use crate::support::{ask, over_upstream};
use crate::upstream::whole;

/// With a key of ours a provider would let in every page there is.
#[tokio::test]
async fn what_a_provider_allows_holds_for_the_callers_own_key_alone() {
    let allowed = "access-control-allow-origin: *\r\naccess-control-expose-headers: x\r\n";
    let reply = whole("application/json", allowed, crate::support::REPLY);
    for (more, passes) in [("api_key = \"k\"", ""), ("auth = \"passthrough\"", "*")] {
        let (upstream, gateway) = over_upstream("", more).await;
        for (method, path) in [
            (Method::OPTIONS, "/v1/messages"),
            (Method::POST, "/v1/messages"),
            (Method::POST, "/v1/files"),
        ] {
            let headers = [
                ("origin", "https://evil.example"),
                ("content-type", "application/json"),
            ];
            let body = ask("Hello.", false).to_string();
            let client = &gateway.client;
            let sent = client.send(method.clone(), path, &headers, body);
            let (answer, ()) = tokio::join!(sent, async {
                upstream.next().await.answer(&reply).await;
            });
            let told = answer.header("access-control-allow-origin");
            assert_eq!(told, passes, "{method} {path} {more}");
        }
    }
}
