//! An MCP server over HTTP with the same tools and one answer per request. It requires a token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use super::server::answers;

/// The bearer token that the server requires.
pub(crate) const TOKEN: &str = "canary-token";

/// Starts the server, which runs until the test ends; returns its URL.
pub(crate) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    format!("http://{address}/mcp")
}

fn serve(stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let mut headers = head.iter().filter_map(|line| line.split_once(": "));
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let may = header("authorization").as_deref() == Some(&format!("Bearer {TOKEN}"))
        && header("x-team").as_deref() == Some("tests");
    let (status, body) = match (may, head.first()?.starts_with("POST ")) {
        (false, _) => ("401 Unauthorized", String::new()),
        (true, false) => ("405 Method Not Allowed", String::new()),
        (true, true) => {
            let message: Value = serde_json::from_slice(&body).ok()?;
            match answers(&message).pop() {
                Some(answer) => ("200 OK", answer.to_string()),
                None => ("202 Accepted", String::new()),
            }
        }
    };
    let mut stream = stream;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()
}
