//! Lines of a program's output, for protocols with one message a line. A line that is too long is
//! only measured: the request that it answers is still determined.

use tokio::io::AsyncBufReadExt;

/// The maximum size of a message, in bytes.
pub const LINE_LIMIT: usize = 16 << 20;

/// Reads one line; only both ends of one that is too long.
#[derive(Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    ends: Option<TooLong>,
}

/// The two ends of a line.
#[derive(Default)]
pub struct TooLong {
    first: Vec<u8>,
    last: Vec<u8>,
}

/// The number of bytes kept of each end.
const END: usize = 128;

impl TooLong {
    fn more(&mut self, bytes: &[u8]) {
        self.first
            .extend(bytes.iter().take(END - self.first.len().min(END)));
        self.last.extend(&bytes[bytes.len().saturating_sub(END)..]);
        let too_many = self.last.len().saturating_sub(END);
        self.last.drain(..too_many);
    }

    /// The id of the request that it answers, if the id is its first or last field.
    pub fn answers(&self) -> Option<i64> {
        let plain = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.replace(|c: char| c.is_ascii_whitespace(), "")
        };
        let (first, last) = (plain(&self.first), plain(&self.last));
        let version = r#""jsonrpc":"2.0","#;
        let head = first.strip_prefix('{')?;
        let head = head.strip_prefix(version).unwrap_or(head);
        if let Some(id) = head.strip_prefix(r#""id":"#) {
            return id.split(',').next()?.parse().ok();
        }
        let tail = last.strip_suffix('}')?;
        let tail = tail
            .strip_suffix(version.trim_end_matches(','))
            .and_then(|tail| tail.strip_suffix(','))
            .unwrap_or(tail);
        tail.rsplit_once(r#","id":"#)?.1.parse().ok()
    }
}

impl LineBuffer {
    /// The next line without its line end and surrounding blanks; `None` at the end of the stream.
    /// An incomplete last line is dropped.
    pub async fn next(
        &mut self,
        output: &mut (impl AsyncBufReadExt + Unpin),
    ) -> Option<Result<&[u8], TooLong>> {
        self.bytes.clear();
        self.ends = None;
        loop {
            let available = output.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            let more = &available[..taken];
            if self.bytes.len() + taken > LINE_LIMIT && self.ends.is_none() {
                let mut ends = TooLong::default();
                ends.more(&std::mem::take(&mut self.bytes));
                self.ends = Some(ends);
            }
            match &mut self.ends {
                Some(ends) => ends.more(more),
                None => self.bytes.extend_from_slice(more),
            }
            output.consume(end.map_or(taken, |end| end + 1));
            if end.is_some() {
                return Some(match self.ends.take() {
                    Some(ends) => Err(ends),
                    None => Ok(self.bytes.trim_ascii()),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_their_ends_and_too_long_ones_are_only_counted() {
        let long = "x".repeat(LINE_LIMIT + 1);
        let text = format!(" one \r\n\n{long}\ntwo\nhalf");
        let mut output = BufReader::new(text.as_bytes());
        let mut line = LineBuffer::default();
        let mut found = Vec::new();
        while let Some(next) = line.next(&mut output).await {
            found.push(
                next.map_or_else(|_| "long".into(), String::from_utf8_lossy)
                    .into_owned(),
            );
        }
        assert_eq!(found, ["one", "", "long", "two"]);
    }

    #[test]
    fn of_an_answer_that_is_too_long_it_is_known_which_call_it_answers() {
        let filling = "x".repeat(3 * END);
        for (line, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{filling}"}}}}"#),
                Some(7),
            ),
            (
                format!(r#"{{ "id": 8, "result": {{"a":"{filling}"}} }}"#),
                Some(8),
            ),
            (
                format!(r#"{{"result":{{"a":"{filling}"}},"jsonrpc":"2.0","id":9}}"#),
                Some(9),
            ),
            (
                format!(r#"{{"result":{{"a":"{filling}"}},"id":10,"jsonrpc":"2.0"}}"#),
                Some(10),
            ),
            (format!(r#"{{"result":{{"a":"{filling}","id":11}}}}"#), None),
            (format!(r#"{{"result":"{filling}","id":"text"}}"#), None),
            (filling.clone(), None),
        ] {
            let mut ends = TooLong::default();
            for piece in line.as_bytes().chunks(50) {
                ends.more(piece);
            }
            assert_eq!(ends.answers(), id, "{line}");
        }
    }
}
