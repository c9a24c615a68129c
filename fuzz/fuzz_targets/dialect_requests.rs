//! Reads a client's request in every dialect, writes it in every dialect, and reads it again: nothing
//! panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_codec::dialects::{CLIENT, RequestParts, Target, UPSTREAM};

fuzz_target!(|input: &[u8]| {
    for client in CLIENT {
        let parts = RequestParts {
            path: "/v1beta/models/m:streamGenerateContent",
            query: "alt=sse",
            body: input,
            ..Default::default()
        };
        let Ok(read) = client.read_request(&parts) else {
            continue;
        };
        for upstream in UPSTREAM {
            let target = Target { model: "m", profile: upstream.profile("") };
            let written = upstream.write_request(&read.request, &target).value;
            let body: serde_json::Value =
                serde_json::from_slice(&written.body).expect("a written request is JSON");
            assert!(body.is_object());
            let Some(back) = CLIENT.iter().find(|back| back.name() == upstream.name()) else {
                continue;
            };
            let parts = RequestParts {
                path: &written.path,
                query: &written.query,
                body: &written.body,
                ..Default::default()
            };
            // The request may be refused, as a provider would refuse it.
            let _ = back.read_request(&parts);
        }
    }
});
