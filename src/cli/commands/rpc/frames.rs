//! Framing of messages in a stream of bytes: one JSON per line, or each behind `Content-Length`
//! headers. The first message decides which.

use std::io::{self, BufRead, Read, Write};

use crate::kernel::fault::{Fault, Kind};

/// Maximum size of a message in bytes, the same as the daemon's.
const MAX_MESSAGE_BYTES: usize = 10 * 1024 * 1024;
/// Maximum size of the headers of one message in bytes.
const HEADERS: u64 = 8 * 1024;

/// How messages are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// One message per line.
    Lines,
    /// Each message behind headers.
    Headers,
}

/// Result of one read.
#[derive(Debug, PartialEq)]
pub(super) enum FrameInput {
    /// A message, JSON or not.
    Message(String),
    /// Invalid input, which is answered with this error; the next message may be valid.
    Refused(Fault),
    /// Invalid input after which the start of the next message cannot be found.
    Lost(Fault),
}

/// Reads messages from a stream of bytes.
pub(super) struct FrameReader<R> {
    from: R,
    framing: Option<Framing>,
    lost: bool,
}

impl<R: BufRead> FrameReader<R> {
    pub(super) fn new(from: R) -> Self {
        FrameReader {
            from,
            framing: None,
            lost: false,
        }
    }

    /// The next message and its framing; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<(Framing, FrameInput)>> {
        if self.lost || !self.skip_blank()? {
            return Ok(None);
        }
        let framing = match self.framing {
            Some(framing) => framing,
            None => {
                // No JSON text begins with the first letter of these headers.
                let headers = matches!(self.from.fill_buf()?.first(), Some(b'C' | b'c'));
                *self.framing.insert(match headers {
                    true => Framing::Headers,
                    false => Framing::Lines,
                })
            }
        };
        let input = match framing {
            Framing::Lines => self.line()?,
            Framing::Headers => match self.headed()? {
                Some(input) => input,
                None => return Ok(None),
            },
        };
        self.lost = matches!(input, FrameInput::Lost(_));
        Ok(Some((framing, input)))
    }

    /// Skips whitespace and byte order marks; `false` at the end of the input.
    fn skip_blank(&mut self) -> io::Result<bool> {
        loop {
            let bytes = self.from.fill_buf()?;
            if bytes.is_empty() {
                return Ok(false);
            }
            let blank = |byte: &u8| byte.is_ascii_whitespace() || [0xef, 0xbb, 0xbf].contains(byte);
            let skip = bytes.iter().take_while(|byte| blank(byte)).count();
            let more = skip < bytes.len();
            self.from.consume(skip);
            if more {
                return Ok(true);
            }
        }
    }

    fn line(&mut self) -> io::Result<FrameInput> {
        let mut bytes = Vec::new();
        self.from
            .by_ref()
            .take(MAX_MESSAGE_BYTES as u64 + 1)
            .read_until(b'\n', &mut bytes)?;
        if bytes.len() > MAX_MESSAGE_BYTES && bytes.last() != Some(&b'\n') {
            self.from.skip_until(b'\n')?;
            return Ok(FrameInput::Refused(too_large()));
        }
        Ok(text(bytes))
    }

    fn headed(&mut self) -> io::Result<Option<FrameInput>> {
        let mut length = None;
        let mut left = HEADERS;
        loop {
            let mut bytes = Vec::new();
            let read = self
                .from
                .by_ref()
                .take(left)
                .read_until(b'\n', &mut bytes)?;
            left -= read as u64;
            if bytes.last() != Some(&b'\n') {
                // An end in the middle of a message is the end of the input.
                return Ok((left == 0).then(|| lost("the headers are too long")));
            }
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else {
                return Ok(Some(lost("a header without a colon")));
            };
            if name.trim().eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<usize>().ok();
            }
        }
        let Some(length) = length else {
            return Ok(Some(lost("no Content-Length that is a number")));
        };
        if length > MAX_MESSAGE_BYTES {
            let mut body = self.from.by_ref().take(length as u64);
            io::copy(&mut body, &mut io::sink())?;
            return Ok(Some(FrameInput::Refused(too_large())));
        }
        let mut bytes = vec![0; length];
        match self.from.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(text(bytes))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Writes and flushes a message.
pub(super) fn write(out: &mut impl Write, framing: Framing, text: &str) -> io::Result<()> {
    match framing {
        Framing::Lines => writeln!(out, "{text}")?,
        Framing::Headers => write!(out, "Content-Length: {}\r\n\r\n{text}", text.len())?,
    }
    out.flush()
}

fn text(bytes: Vec<u8>) -> FrameInput {
    match String::from_utf8(bytes) {
        Ok(text) => FrameInput::Message(text),
        Err(error) => FrameInput::Refused(Fault::new(
            Kind::ParseError,
            format!("the message is not UTF-8: {error}"),
        )),
    }
}

fn too_large() -> Fault {
    Fault::new(
        Kind::TooLarge,
        format!("the message is larger than the limit of {MAX_MESSAGE_BYTES} bytes"),
    )
    .with("limit", "payload")
    .with("value", MAX_MESSAGE_BYTES)
}

fn lost(what: &str) -> FrameInput {
    FrameInput::Lost(
        Fault::new(
            Kind::ParseError,
            format!("the start of the next message cannot be found: {what}"),
        )
        .hint("send each message behind Content-Length: BYTES and a blank line"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<(Framing, FrameInput)> {
        // A small buffer, so that messages are longer than it.
        let mut reader = FrameReader::new(io::BufReader::with_capacity(7, bytes));
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    fn messages(bytes: &[u8]) -> Vec<String> {
        let texts = read(bytes).into_iter().map(|(_, input)| match input {
            FrameInput::Message(text) => text.trim().to_owned(),
            other => format!("{other:?}"),
        });
        texts.collect()
    }

    #[test]
    fn the_first_message_says_how_they_are_told_apart() {
        assert_eq!(
            messages(b"{\"a\":1}\n\n [2]\r\n{}"),
            ["{\"a\":1}", "[2]", "{}"]
        );
        let headed =
            b"Content-Length: 9\r\n\r\n{\"a\": 1}\ncontent-length:2\r\nContent-Type: x\r\n\r\n{}";
        assert_eq!(messages(headed), ["{\"a\": 1}", "{}"]);
        assert!(
            read(headed)
                .iter()
                .all(|(framing, _)| *framing == Framing::Headers)
        );
        assert_eq!(messages("\u{feff}{}".as_bytes()), ["{}"]);
        assert_eq!(read(b" \n"), []);
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        for framing in [Framing::Lines, Framing::Headers] {
            let mut bytes = Vec::new();
            for text in ["{\"a\":\"\u{e4}\"}", "[]"] {
                write(&mut bytes, framing, text).unwrap();
            }
            assert_eq!(messages(&bytes), ["{\"a\":\"\u{e4}\"}", "[]"]);
            assert!(read(&bytes).iter().all(|(found, _)| *found == framing));
        }
    }

    #[test]
    fn a_message_that_is_too_large_or_no_text_does_not_take_the_next_along() {
        let large = "x".repeat(MAX_MESSAGE_BYTES + 1);
        for bytes in [
            format!("{{}}\n\"{large}\"\n[1]\n"),
            format!(
                "Content-Length: 2\n\n{{}}Content-Length: {}\n\n{large}Content-Length: 3\n\n[1]",
                large.len()
            ),
        ] {
            let found = read(bytes.as_bytes());
            assert!(
                matches!(&found[1].1, FrameInput::Refused(fault) if fault.kind == Kind::TooLarge)
            );
            assert_eq!(
                found[2].1,
                match &found[2].1 {
                    FrameInput::Message(text) => FrameInput::Message(text.clone()),
                    other => panic!("{other:?}"),
                }
            );
            assert_eq!(found.len(), 3);
        }
        let found = read(b"{}\n\xff\xff\n[1]\n");
        assert!(
            matches!(&found[1].1, FrameInput::Refused(fault) if fault.kind == Kind::ParseError)
        );
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn broken_headers_end_it_and_a_cut_message_is_the_end() {
        for broken in [
            &b"Content-Length: x\r\n\r\n{}"[..],
            b"Content-Type: y\r\n\r\n{}",
            b"Content\r\n\r\n{}",
        ] {
            let found = read(broken);
            assert!(matches!(found[..], [(_, FrameInput::Lost(_))]), "{found:?}");
        }
        assert_eq!(read(b"Content-Length: 5\r\n\r\n{}"), []);
        assert_eq!(read(b"Content-Len"), []);
    }
}
