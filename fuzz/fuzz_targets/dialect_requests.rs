//! A client's request in any dialect: reading does no harm, and what was read can be written by
//! every dialect and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_codec::dialects::{RequestParts, CLIENT, Target, UPSTREAM};

fuzz_target!(|input: &[u8]| {
    for client in CLIENT {
        let asked =
            RequestParts { path: "/v1beta/models/m:streamGenerateContent", query: "alt=sse", body: input };
        let Ok(read) = client.read_request(&asked) else {
            continue;
        };
        for upstream in UPSTREAM {
            let target = Target { model: "m", variant: "" };
            let written = upstream.write_request(&read.value, &target).value;
            let body: serde_json::Value =
                serde_json::from_slice(&written.body).expect("what we write is JSON");
            assert!(body.is_object());
            let Some(back) = CLIENT.iter().find(|back| back.name() == upstream.name()) else {
                continue;
            };
            let asked = RequestParts { path: &written.path, query: &written.query, body: &written.body };
            // What a provider would refuse may be refused; it must not do harm.
            let _ = back.read_request(&asked);
        }
    }
});
