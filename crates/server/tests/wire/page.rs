//! The web page for browsers, and the line of text that other clients get at the same path.

use http::Method;

use crate::support::gateway_over_raw_upstream;

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

#[tokio::test]
async fn page_is_served_to_browsers_and_text_to_others() {
    let (_upstream, gateway) = gateway_over_raw_upstream("", "").await;
    for path in ["/", "/p/project_1", "/rooms/room_1", "/inspector", "/unlock"] {
        let page = gateway.client.send(Method::GET, path, &[BROWSER], "").await.expect_ok();
        assert!(page.header("content-type").starts_with("text/html"), "{path}");
        let policy = page.header("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe-inline"),
            "{path}"
        );
        assert!(page.text().contains("<title>Throughline</title>"), "{path}");
    }
    let text = gateway.client.get("/").await.expect_ok().text();
    assert!(text.starts_with("Throughline is running."), "{text}");
    // Other paths of a dialect are not hidden by the page.
    assert_eq!(gateway.client.get("/p/project_1").await.status, 404);
}
