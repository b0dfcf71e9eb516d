//! The content of a transcript entry, kept as its stored text until the blocks are needed. A
//! conversation is read and sent again with every turn, and most of its entries only pass through.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::{AnswerFinding, Block};

/// The blocks of an entry, parsed on first access.
#[derive(Clone, Default)]
pub struct Blocks {
    stored: StoredBlocks,
    /// The provider's raw answer, kept apart from the rest of the content.
    native: Option<Box<Native>>,
    read: OnceLock<Vec<Block>>,
    size: OnceLock<u64>,
}

/// The stored form of the blocks, without the raw answer.
#[derive(Clone, Default)]
enum StoredBlocks {
    /// The blocks do not come from the store.
    #[default]
    Nothing,
    /// A single text block: its JSON string, with the quotes.
    Text(Box<RawValue>),
    /// A JSON list of blocks.
    List(Box<str>),
}

/// A model's raw answer as its provider sent it.
#[derive(Clone)]
struct Native {
    /// Its index among the blocks.
    at: usize,
    from: Arc<NativeOrigin>,
    json: Box<RawValue>,
}

/// The origin of a raw answer.
#[derive(PartialEq)]
struct NativeOrigin {
    provider: String,
    api: String,
    model: String,
}

impl Blocks {
    /// Parses the stored text. Fails if it is not a list of blocks.
    pub fn stored(text: &str) -> serde_json::Result<Self> {
        let mut native = None;
        let stored = match lone_text(text) {
            Some(text) => StoredBlocks::Text(text.to_owned()),
            None => {
                let blocks: Vec<BlockRef<'_>> = serde_json::from_str(text)?;
                let (list, answer) = parted(text, &blocks);
                native = answer;
                match lone_text(&list) {
                    Some(text) => StoredBlocks::Text(text.to_owned()),
                    None => StoredBlocks::List(list.into()),
                }
            }
        };
        Ok(Blocks {
            stored,
            native: native.map(Box::new),
            ..Blocks::default()
        })
    }

    /// The blocks, borrowed from the stored text where possible.
    pub fn pieces(&self) -> Vec<BlockRef<'_>> {
        let mut blocks = match &self.stored {
            StoredBlocks::Nothing => return self.iter().map(BlockRef::from).collect(),
            StoredBlocks::Text(text) => vec![BlockRef::Text(Quoted::Raw(text))],
            StoredBlocks::List(list) => refs(list),
        };
        if let Some(Native { at, from, json }) = self.native.as_deref() {
            let native = BlockRef::Native {
                provider: Quoted::Plain(from.provider.as_str().into()),
                api: Quoted::Plain(from.api.as_str().into()),
                model: Quoted::Plain(from.model.as_str().into()),
                json: Quoted::Plain(json.get().into()),
            };
            blocks.insert((*at).min(blocks.len()), native);
        }
        blocks
    }

    /// Its text, if it has no other content besides a raw answer.
    pub fn only_text(&self) -> Option<Quoted<'_>> {
        match &self.stored {
            StoredBlocks::Text(text) => Some(Quoted::Raw(text)),
            StoredBlocks::List(_) => None,
            StoredBlocks::Nothing => match &**self {
                [Block::Text { text }] | [Block::Text { text }, Block::Native { .. }] => {
                    Some(Quoted::Plain(text.into()))
                }
                _ => None,
            },
        }
    }

    /// The raw answer, if this provider gave it over this API.
    pub fn native(&self, provider: &str, api: &str) -> Option<Cow<'_, RawValue>> {
        if let Some(Native { from, json, .. }) = self.native.as_deref() {
            return (from.provider == provider && from.api == api).then_some(Cow::Borrowed(json));
        }
        self.pieces().into_iter().find_map(|block| match block {
            BlockRef::Native {
                provider: by,
                api: over,
                json,
                ..
            } if by.text() == provider && over.text() == api => match json.text() {
                Cow::Borrowed(json) => serde_json::from_str(json).ok().map(Cow::Borrowed),
                Cow::Owned(json) => RawValue::from_string(json).ok().map(Cow::Owned),
            },
            _ => None,
        })
    }

    /// All its text blocks, joined by an empty line.
    pub fn text(&self) -> String {
        if let Some(text) = self.only_text() {
            return text.text().into_owned();
        }
        let texts = self.pieces().into_iter().filter_map(|block| match block {
            BlockRef::Text(text) => Some(text.text()),
            _ => None,
        });
        let texts = texts.filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let native = self.native.as_deref();
        let native = native.map_or(0, |native| size_of::<Native>() + native.json.get().len());
        native
            + match &self.stored {
                StoredBlocks::Nothing => self.iter().map(about_bytes).sum(),
                StoredBlocks::Text(text) => text.get().len(),
                StoredBlocks::List(list) => list.len(),
            }
    }

    /// A size in another unit, computed once by `work_out` and then cached.
    pub fn size(&self, work_out: impl FnOnce(&Self) -> u64) -> u64 {
        *self.size.get_or_init(|| work_out(self))
    }

    /// Takes the parsed blocks out of it.
    pub fn into_vec(self) -> Vec<Block> {
        match self.read.get() {
            Some(_) => self.read.into_inner().unwrap_or_default(),
            None => self.blocks(),
        }
    }

    /// Parses the blocks from the stored form.
    fn blocks(&self) -> Vec<Block> {
        match &self.stored {
            StoredBlocks::Nothing => Vec::new(),
            _ => self.pieces().into_iter().map(Block::from).collect(),
        }
    }
}

/// Splits a stored list into the list without its raw answer, and that answer.
fn parted<'a>(list: &'a str, blocks: &[BlockRef<'_>]) -> (Cow<'a, str>, Option<Native>) {
    match without_native(list, blocks) {
        Some((list, native)) => (Cow::Owned(list), Some(native)),
        None => (Cow::Borrowed(list), None),
    }
}

fn without_native(list: &str, blocks: &[BlockRef<'_>]) -> Option<(String, Native)> {
    let is_native = |block: &BlockRef<'_>| matches!(block, BlockRef::Native { .. });
    let at = blocks.iter().position(is_native)?;
    let BlockRef::Native {
        provider: Quoted::Raw(provider),
        api,
        model,
        json: Quoted::Raw(json),
    } = &blocks[at]
    else {
        return None;
    };
    // The block's bounds follow from the positions of its first and last field in the parsed text.
    let place = |raw: &RawValue| raw.get().as_ptr().addr().checked_sub(list.as_ptr().addr());
    let before = list.get(..place(provider)?)?;
    let before = before.strip_suffix(r#"{"type":"native","provider":"#)?;
    let after = list.get(place(json)? + json.get().len()..)?;
    let after = after.strip_prefix('}')?;
    let list = match before.strip_suffix(',') {
        Some(before) => format!("{before}{after}"),
        None => format!("{before}{}", after.strip_prefix(',').unwrap_or(after)),
    };
    // A second raw answer stays in the list, and one that is not JSON stays a text.
    let json = RawValue::from_string(decoded(json).into_owned()).ok()?;
    let from = shared(NativeOrigin {
        provider: decoded(provider).into_owned(),
        api: api.text().into_owned(),
        model: model.text().into_owned(),
    });
    Some((list, Native { at, from, json }))
}

thread_local! {
    /// The last origin seen; mostly the next one is the same.
    static LAST: RefCell<Option<Arc<NativeOrigin>>> = const { RefCell::new(None) };
}

/// Shares one allocation between equal consecutive origins.
fn shared(from: NativeOrigin) -> Arc<NativeOrigin> {
    LAST.with_borrow_mut(|last| match last {
        Some(last) if **last == from => Arc::clone(last),
        last => Arc::clone(last.insert(Arc::new(from))),
    })
}

impl Deref for Blocks {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        self.read.get_or_init(|| self.blocks())
    }
}

impl From<Vec<Block>> for Blocks {
    fn from(read: Vec<Block>) -> Self {
        Blocks {
            read: read.into(),
            ..Blocks::default()
        }
    }
}

impl<'a> IntoIterator for &'a Blocks {
    type Item = &'a Block;
    type IntoIter = std::slice::Iter<'a, Block>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<Vec<Block>> for Blocks {
    fn eq(&self, other: &Vec<Block>) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

fn refs(list: &str) -> Vec<BlockRef<'_>> {
    // The text was validated when it was read.
    serde_json::from_str(list).unwrap_or_default()
}

/// The JSON string of a list that consists of one text block, as this program writes such lists.
fn lone_text(stored: &str) -> Option<&RawValue> {
    let text = stored.strip_prefix(r#"[{"type":"text","text":"#)?;
    let text = text.strip_suffix("}]")?;
    // With more than one block the rest is not valid JSON.
    let text: &RawValue = serde_json::from_str(text).ok()?;
    text.get().starts_with('"').then_some(text)
}

fn about_bytes(block: &Block) -> usize {
    const BESIDE: usize = 64;
    BESIDE
        + match block {
            Block::Text { text } | Block::ToolResult { text, .. } => text.len(),
            Block::Native { json, .. } => json.len(),
            Block::Note { .. } => BESIDE,
            Block::ToolCall {
                name, arguments, ..
            } => name.len() + arguments.to_string().len(),
        }
}

/// A string, either as raw JSON or decoded.
#[derive(Clone, Debug)]
pub enum Quoted<'a> {
    /// A JSON string with quotes and escapes.
    Raw(&'a RawValue),
    /// The decoded text.
    Plain(Cow<'a, str>),
}

impl<'a> Quoted<'a> {
    /// The decoded text.
    pub fn text(&self) -> Cow<'a, str> {
        match self {
            Quoted::Raw(raw) => decoded(raw),
            Quoted::Plain(text) => text.clone(),
        }
    }

    /// True if it has nothing but white space.
    pub fn is_blank(&self) -> bool {
        if let Quoted::Raw(raw) = self {
            // The first character of most texts already answers this.
            let first = raw.get().as_bytes().get(1);
            if first.is_some_and(|first| first.is_ascii_graphic() && !matches!(first, b'"' | b'\\'))
            {
                return false;
            }
        }
        self.text().trim().is_empty()
    }
}

impl Serialize for Quoted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Quoted::Raw(raw) => raw.serialize(serializer),
            Quoted::Plain(text) => serializer.serialize_str(text),
        }
    }
}

fn decoded<'a>(raw: &'a RawValue) -> Cow<'a, str> {
    let bare = raw
        .get()
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    match bare {
        Some(bare) if !bare.contains('\\') => Cow::Borrowed(bare),
        // Half of a surrogate pair cannot be decoded; the raw text is kept.
        _ => serde_json::from_str(raw.get()).map_or(Cow::Borrowed(raw.get()), Cow::Owned),
    }
}

/// The arguments of a tool call, as raw JSON or parsed.
#[derive(Clone, Debug)]
pub enum Arguments<'a> {
    /// Raw JSON.
    Raw(&'a RawValue),
    /// A parsed value.
    Read(&'a Value),
}

impl<'a> Arguments<'a> {
    /// The parsed value; null if the raw JSON cannot be parsed.
    pub fn value(&self) -> Cow<'a, Value> {
        match self {
            Arguments::Raw(raw) => Cow::Owned(serde_json::from_str(raw.get()).unwrap_or_default()),
            Arguments::Read(value) => Cow::Borrowed(value),
        }
    }
}

/// A block that borrows from the stored text.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "AnyBlockRef<'_>", bound(deserialize = "'de: 'a"))]
pub enum BlockRef<'a> {
    /// A piece of text.
    Text(Quoted<'a>),
    /// A tool call that the model requests.
    ToolCall {
        /// The model's id for this call.
        id: Quoted<'a>,
        /// Name of the tool.
        name: Quoted<'a>,
        /// The arguments of the call.
        arguments: Arguments<'a>,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call that this answers.
        call: Quoted<'a>,
        /// The output of the tool.
        text: Quoted<'a>,
        /// True if the tool reported a failure.
        is_error: bool,
    },
    /// A model's raw answer as its provider sent it.
    Native {
        /// Name of the provider.
        provider: Quoted<'a>,
        /// Name of the API that it was requested with.
        api: Quoted<'a>,
        /// The model that answered.
        model: Quoted<'a>,
        /// The answer's JSON, as text.
        json: Quoted<'a>,
    },
    /// A finding of the daemon about an answer.
    Note(AnswerFinding),
}

/// All fields that a block of any type may have, parsed in one pass.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct AnyBlockRef<'a> {
    r#type: BlockKind,
    text: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    name: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
    tool_call_id: Option<&'a RawValue>,
    is_error: Option<bool>,
    provider: Option<&'a RawValue>,
    api: Option<&'a RawValue>,
    model: Option<&'a RawValue>,
    json: Option<&'a RawValue>,
    note: Option<AnswerFinding>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum BlockKind {
    Text,
    ToolCall,
    ToolResult,
    Native,
    Note,
}

fn text<'a>(raw: Option<&'a RawValue>, lack: &'static str) -> Result<Quoted<'a>, &'static str> {
    let raw = raw.filter(|raw| raw.get().starts_with('"'));
    raw.map(Quoted::Raw).ok_or(lack)
}

impl<'a> TryFrom<AnyBlockRef<'a>> for BlockRef<'a> {
    type Error = &'static str;

    fn try_from(any: AnyBlockRef<'a>) -> Result<Self, Self::Error> {
        Ok(match any.r#type {
            BlockKind::Text => BlockRef::Text(text(any.text, "a text block without text")?),
            BlockKind::ToolCall => BlockRef::ToolCall {
                id: text(any.id, "a tool call without its id")?,
                name: text(any.name, "a tool call without a name")?,
                arguments: any
                    .arguments
                    .map_or(Arguments::Read(&Value::Null), Arguments::Raw),
            },
            BlockKind::ToolResult => BlockRef::ToolResult {
                call: text(any.tool_call_id, "a tool result without its call")?,
                text: text(any.text, "a tool result without its text")?,
                is_error: any.is_error.ok_or("a tool result without isError")?,
            },
            BlockKind::Native => BlockRef::Native {
                provider: text(any.provider, "a native answer without its provider")?,
                api: text(any.api, "a native answer without its API")?,
                model: text(any.model, "a native answer without its model")?,
                json: text(any.json, "a native answer without its JSON")?,
            },
            BlockKind::Note => BlockRef::Note(any.note.ok_or("a note without its content")?),
        })
    }
}

impl<'a> From<&'a Block> for BlockRef<'a> {
    fn from(block: &'a Block) -> Self {
        let plain = |text: &'a String| Quoted::Plain(text.as_str().into());
        match block {
            Block::Text { text } => BlockRef::Text(plain(text)),
            Block::ToolCall {
                id,
                name,
                arguments,
            } => BlockRef::ToolCall {
                id: plain(id),
                name: plain(name),
                arguments: Arguments::Read(arguments),
            },
            Block::ToolResult {
                tool_call_id,
                text,
                is_error,
            } => BlockRef::ToolResult {
                call: plain(tool_call_id),
                text: plain(text),
                is_error: *is_error,
            },
            Block::Native {
                provider,
                api,
                model,
                json,
            } => BlockRef::Native {
                provider: plain(provider),
                api: plain(api),
                model: plain(model),
                json: plain(json),
            },
            Block::Note { note } => BlockRef::Note(note.clone()),
        }
    }
}

impl From<BlockRef<'_>> for Block {
    fn from(piece: BlockRef<'_>) -> Self {
        let owned = |text: Quoted<'_>| text.text().into_owned();
        match piece {
            BlockRef::Text(text) => Block::Text { text: owned(text) },
            BlockRef::ToolCall {
                id,
                name,
                arguments,
            } => Block::ToolCall {
                id: owned(id),
                name: owned(name),
                arguments: arguments.value().into_owned(),
            },
            BlockRef::ToolResult {
                call,
                text,
                is_error,
            } => Block::ToolResult {
                tool_call_id: owned(call),
                text: owned(text),
                is_error,
            },
            BlockRef::Native {
                provider,
                api,
                model,
                json,
            } => Block::Native {
                provider: owned(provider),
                api: owned(api),
                model: owned(model),
                json: owned(json),
            },
            BlockRef::Note(note) => Block::Note { note },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all() -> Vec<Block> {
        vec![
            Block::Text {
                text: "a \"b\"\n\u{1F600}".to_owned(),
            },
            Block::ToolCall {
                id: "1".to_owned(),
                name: "read".to_owned(),
                arguments: json!({ "path": "x", "n": [1, 2.5] }),
            },
            Block::ToolResult {
                tool_call_id: "1".to_owned(),
                text: "b".to_owned(),
                is_error: true,
            },
            Block::Native {
                provider: "p".to_owned(),
                api: "openai".to_owned(),
                model: "p/m".to_owned(),
                json: r#"{"n": 1.0}"#.to_owned(),
            },
            Block::Note {
                note: AnswerFinding::Paused,
            },
        ]
    }

    #[test]
    fn blocks_are_read_as_they_were_written_and_looked_at_without_being_read() {
        let written = serde_json::to_string(&all()).unwrap();
        let stored = Blocks::stored(&written).unwrap();
        let pieces: Vec<Block> = stored.pieces().into_iter().map(Block::from).collect();
        assert_eq!(pieces, all());
        assert!(stored.read.get().is_none(), "not parsed yet");
        assert_eq!(stored, Blocks::from(all()));
        assert!(stored.read.get().is_some());
        let pieces: Vec<Block> = stored.pieces().into_iter().map(Block::from).collect();
        assert_eq!(pieces, all());
        assert_eq!(Blocks::stored(&written).unwrap().into_vec(), all());
        assert_eq!(Blocks::default().into_vec(), []);
    }

    #[test]
    fn one_text_alone_is_found_with_its_escapes() {
        for text in [
            "",
            "plain",
            "a\nb",
            "\"",
            "\\",
            r#""}]"#,
            "\\\"}]",
            "é\u{1F600}",
        ] {
            let block = vec![Block::Text {
                text: text.to_owned(),
            }];
            let written = serde_json::to_string(&block).unwrap();
            for blocks in [Blocks::stored(&written).unwrap(), block.clone().into()] {
                let found = blocks.only_text().unwrap();
                assert_eq!(found.text(), text);
                assert_eq!(serde_json::to_value(&found).unwrap(), text);
                assert_eq!(found.is_blank(), text.trim().is_empty(), "{text:?}");
            }
        }
        let two = vec![all()[0].clone(), all()[0].clone()];
        let two = serde_json::to_string(&two).unwrap();
        for other in [
            two.as_str(),
            "[]",
            r#"[{"type":"text","text":"a","more":1}]"#,
        ] {
            assert!(
                Blocks::stored(other).unwrap().only_text().is_none(),
                "{other}"
            );
        }
    }

    #[test]
    fn an_answer_as_it_came_is_given_back_to_whoever_gave_it() {
        let json = r#"{"z": 1.50,  "content":"a \"b\"" }"#;
        let native = |json: &str| Block::Native {
            provider: "p".to_owned(),
            api: "openai".to_owned(),
            model: "p/m".to_owned(),
            json: json.to_owned(),
        };
        let text = all()[0].clone();
        for blocks in [
            vec![native(json)],
            vec![text.clone(), native(json)],
            vec![all()[1].clone(), native(json)],
            vec![native(json), text.clone()],
            vec![
                text.clone(),
                native(json),
                Block::Note {
                    note: AnswerFinding::Paused,
                },
            ],
        ] {
            let written = serde_json::to_string(&blocks).unwrap();
            for content in [Blocks::stored(&written).unwrap(), blocks.clone().into()] {
                let found = content.native("p", "openai").unwrap();
                assert_eq!(found.get(), json);
                assert!(content.native("q", "openai").is_none());
                assert!(content.native("p", "anthropic").is_none());
                assert_eq!(content.into_vec(), blocks);
            }
        }
        let both = vec![text, native(json)];
        let both = Blocks::stored(&serde_json::to_string(&both).unwrap()).unwrap();
        assert_eq!(both.only_text().unwrap().text(), "a \"b\"\n\u{1F600}");
        // A raw answer that is not JSON is kept, and sent to no provider.
        let broken = Blocks::stored(&serde_json::to_string(&[native("{")]).unwrap()).unwrap();
        assert!(broken.native("p", "openai").is_none());
        assert_eq!(broken.into_vec(), [native("{")]);
    }

    #[test]
    fn what_is_no_list_of_blocks_is_refused_when_it_is_read() {
        for bad in [
            "",
            "{}",
            "[7]",
            r#"[{"type":"text"}]"#,
            r#"[{"type":"text","text":7}]"#,
            r#"[{"type":"text","text":"a"}"#,
            r#"[{"type":"other","text":"a"}]"#,
            r#"[{"type":"tool_result","toolCallId":"a","text":"b"}]"#,
            r#"[{"type":"text","text":"a"}] x"#,
        ] {
            assert!(Blocks::stored(bad).is_err(), "{bad}");
        }
        // Half of a surrogate pair is stored as a character that cannot be shown, and is no error.
        let half = Blocks::stored(r#"[{"type":"text","text":"\ud83d"}]"#).unwrap();
        assert_eq!(half.len(), 1);
    }
}
