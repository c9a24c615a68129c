//! Installs and starts nginx, the reverse proxy we compare with, with the settings a person would
//! choose for streamed replies.

use std::net::SocketAddr;
use std::path::Path;

use crate::Failure;
use crate::children::Guard;
use crate::packages;

use super::process::Placement;

const PROGRAM: &str = "/usr/sbin/nginx";

/// Installs nginx if it is missing.
pub(super) fn install() -> Result<(), Failure> {
    if Path::new(PROGRAM).exists() {
        return Ok(());
    }
    packages::debian("nginx-light")
}

/// Starts nginx in front of `upstream`.
pub(super) fn start(
    address: SocketAddr,
    upstream: SocketAddr,
    placement: Placement,
    folder: &Path,
) -> Result<Guard, Failure> {
    let config = folder.join("nginx.conf");
    std::fs::write(&config, configuration(address, upstream, folder))
        .map_err(|error| format!("cannot write the configuration of nginx: {error}"))?;
    let mut nginx = placement.proxy(Path::new(PROGRAM));
    nginx.arg("-p").arg(folder).arg("-c").arg(&config);
    nginx.args(["-e", "stderr"]);
    Guard::start("nginx", &mut nginx, folder)
}

/// One process without workers, so that ending it by its id ends all of nginx.
fn configuration(address: SocketAddr, upstream: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"daemon off;
master_process off;
worker_processes 1;
pid "{folder}/nginx.pid";
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path "{folder}/nginx-body";
    proxy_temp_path "{folder}/nginx-proxy";
    fastcgi_temp_path "{folder}/nginx-fastcgi";
    uwsgi_temp_path "{folder}/nginx-uwsgi";
    scgi_temp_path "{folder}/nginx-scgi";
    keepalive_requests 10000000;
    upstream upstream {{
        server {upstream};
        keepalive 512;
        keepalive_requests 10000000;
    }}
    server {{
        listen {address};
        client_max_body_size 64m;
        client_body_buffer_size 1m;
        location / {{
            proxy_pass http://upstream;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 120s;
        }}
    }}
}}
"#
    )
}
