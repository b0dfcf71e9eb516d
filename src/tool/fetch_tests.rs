//! Tests `fetch` against a local server.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};

use serde_json::json;

use super::built_in::ToolAction;
use super::{ToolOutput, Workspace, fetch};
use crate::outbound::address::Private;

/// Starts a server that answers each request by its path, until the test ends.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            let path = first.split(' ').nth(1).unwrap().to_owned();
            let to = |place: String| format!("302 Found\r\nlocation: {place}");
            let (head, body) = match path.as_str() {
                "/page" => (
                    "200 OK\r\ncontent-type: text/html".to_owned(),
                    b"<p>hello</p>".to_vec(),
                ),
                "/there" => (to("/page".to_owned()), Vec::new()),
                "/loop" => (to("/loop".to_owned()), Vec::new()),
                "/away" => (to("http://example.org/x".to_owned()), Vec::new()),
                "/home" => (
                    to("http://169.254.169.254/latest/meta-data".to_owned()),
                    Vec::new(),
                ),
                "/file" => (to("file:///etc/passwd".to_owned()), Vec::new()),
                "/image" => (
                    "200 OK\r\ncontent-type: image/png".to_owned(),
                    b"\x89PNG\0".to_vec(),
                ),
                "/odd" => ("200 OK".to_owned(), b"caf\xe9".to_vec()),
                "/large" => ("200 OK".to_owned(), vec![b'a'; 6 * 1024 * 1024]),
                _ => ("404 Not Found".to_owned(), b"nothing here".to_vec()),
            };
            let head = format!(
                "HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            // The client may close the connection during a long response.
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    own
}

async fn fetch(private: &[&str], url: String) -> ToolOutput {
    let named: Vec<String> = private.iter().map(|one| (*one).to_owned()).collect();
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path(), &[]).unwrap();
    let ToolAction::Workspace(call) = fetch::tool(Private::new(&named)).action else {
        panic!("it is called otherwise");
    };
    call(workspace, json!({ "url": url })).await
}

#[tokio::test]
async fn what_stands_there_is_given_as_text() {
    let own = server();
    let got = fetch(&["127.0.0.1"], format!("http://{own}/there#part")).await;
    assert!(!got.is_error, "{}", got.text);
    assert!(
        got.text
            .starts_with(&format!("http://{own}/page: 200 OK, text/html, 12 bytes"))
    );
    assert!(got.text.ends_with("\n\n<p>hello</p>"), "{}", got.text);
    let odd = fetch(&["127.0.0.1"], format!("http://{own}/odd")).await;
    assert!(odd.text.ends_with("caf\u{fffd}"), "{}", odd.text);
    let large = fetch(&["127.0.0.1"], format!("http://{own}/large")).await;
    assert!(
        large.text.contains("the rest was not read"),
        "{}",
        &large.text[..200]
    );
}

#[tokio::test]
async fn g10_10_no_step_of_the_way_leads_to_where_it_may_not() {
    let own = server();
    for (path, says) in [
        ("/loop", "stopped after 5 redirects"),
        ("/away", "another host"),
        ("/home", "another host"),
        ("/file", "not http or https"),
        ("/image", "The content is not text"),
        ("/none", "404"),
    ] {
        let got = fetch(&["127.0.0.1"], format!("http://{own}{path}")).await;
        assert!(
            got.is_error && got.text.contains(says),
            "{path}: {}",
            got.text
        );
    }
    let port = own.port();
    for url in [
        format!("http://{own}/page"),
        format!("http://localhost:{port}/page"),
        format!("http://0x7f.1:{port}/page"),
        format!("http://2130706433:{port}/page"),
        format!("http://[::ffff:127.0.0.1]:{port}/page"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[fd00:ec2::254]/".to_owned(),
    ] {
        let got = fetch(&[], url.clone()).await;
        assert!(got.is_error, "{url}: {}", got.text);
        assert!(
            got.text.contains("fetch.allow_private"),
            "{url}: {}",
            got.text
        );
    }
    for url in [
        "ftp://example.org/",
        "file:///etc/passwd",
        "http://a:b@example.org/",
        "x",
        "",
    ] {
        assert!(fetch(&[], url.to_owned()).await.is_error, "{url}");
    }
}
