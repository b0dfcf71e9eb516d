//! Words of a command line: quotes are taken away, expansions become holes, and the commands
//! inside them are read.

use super::parser::{DEPTH, Parser, Read, read_into};
use super::word::{HOLE, Word};

impl Parser<'_> {
    /// A text in which nothing but expansions is special.
    pub(super) fn expanded(&mut self, text: &str) -> Read<Word> {
        let mut word = Word::default();
        let mut inner = Parser {
            chars: text.chars().collect(),
            at: 0,
            depth: self.depth,
            script: &mut *self.script,
            waiting: Vec::new(),
        };
        while let Some(c) = inner.peek(0) {
            inner.in_quotes(c, &mut word)?;
        }
        Some(word)
    }

    /// One word, up to what parts words.
    pub(super) fn word(&mut self) -> Read<Word> {
        let mut word = Word::default();
        let start = self.at;
        let (mut opened, mut several) = (false, false);
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' => break,
                '<' | '>' if self.peek(1) == Some('(') => {
                    self.at += 2;
                    self.nested(|parser| parser.list(Some(')')))?;
                    hole(&mut word, "", true);
                }
                '<' | '>' => break,
                '\\' if self.peek(1) == Some('\n') => self.at += 2,
                '\\' => {
                    quote(&mut word);
                    push(&mut word, self.peek(1)?);
                    self.at += 2;
                }
                '\'' => {
                    self.at += 1;
                    quote(&mut word);
                    loop {
                        let c = self.peek(0)?;
                        self.at += 1;
                        if c == '\'' {
                            break;
                        }
                        push(&mut word, c);
                    }
                }
                '"' => {
                    self.at += 1;
                    quote(&mut word);
                    loop {
                        let c = self.peek(0)?;
                        if c == '"' {
                            self.at += 1;
                            break;
                        }
                        self.in_quotes(c, &mut word)?;
                    }
                }
                '$' | '`' => self.expansion(&mut word, true)?,
                // The program of that name.
                '[' if self.at == start && matches!(self.peek(1), Some(' ' | '\t')) => {
                    push(&mut word, c);
                    self.at += 1;
                }
                // One of several files, or none.
                '*' | '?' | '[' => {
                    self.at += 1;
                    hole(&mut word, &c.to_string(), true);
                }
                '~' if self.at == start || word.text.ends_with(['=', ':']) => {
                    self.at += 1;
                    hole(&mut word, "~", false);
                }
                c => {
                    opened |= c == '{';
                    several |= opened && (c == ',' || (c == '.' && self.peek(1) == Some('.')));
                    push(&mut word, c);
                    self.at += 1;
                }
            }
        }
        if several && word.literal.contains('}') {
            // `{a,b}`: words that only some shells make of it.
            word.text = HOLE.to_string();
            word.splits = true;
        }
        (self.at > start).then_some(word)
    }

    /// What stands between double quotes, or in a here-document.
    fn in_quotes(&mut self, c: char, word: &mut Word) -> Read<()> {
        match c {
            '\\' => {
                self.at += 1;
                match self.peek(0) {
                    Some('\n') => self.at += 1,
                    Some(c @ ('$' | '`' | '"' | '\\')) => {
                        push(word, c);
                        self.at += 1;
                    }
                    _ => push(word, '\\'),
                }
                Some(())
            }
            '$' | '`' => self.expansion(word, false),
            c => {
                push(word, c);
                self.at += 1;
                Some(())
            }
        }
    }

    /// `$…` or backticks; what they run is read too.
    fn expansion(&mut self, word: &mut Word, splits: bool) -> Read<()> {
        let start = self.at;
        let first = self.peek(0)?;
        self.at += 1;
        if first == '`' {
            let mut inner = String::new();
            loop {
                let c = self.peek(0)?;
                self.at += 1;
                match c {
                    '`' => break,
                    '\\' if matches!(self.peek(0), Some('`' | '\\' | '$')) => {
                        inner.extend(self.peek(0));
                        self.at += 1;
                    }
                    c => inner.push(c),
                }
            }
            if self.depth >= DEPTH {
                return None;
            }
            read_into(&inner, self.depth + 1, self.script);
        } else {
            match self.peek(0) {
                Some('(') if self.peek(1) == Some('(') => {
                    self.at += 2;
                    let from = self.at;
                    self.balanced('(', ')', 2)?;
                    self.is_sum(from).then_some(())?;
                }
                Some('(') => {
                    self.at += 1;
                    self.nested(|parser| parser.list(Some(')')))?;
                }
                Some('{') => {
                    self.at += 1;
                    self.balanced('{', '}', 1)?;
                }
                // Quotes of some shells, with escapes of their own.
                Some('\'' | '"') if splits => {
                    let quote = self.peek(0)?;
                    self.at += 1;
                    loop {
                        match self.peek(0)? {
                            '\\' => self.at += 2,
                            c => {
                                self.at += 1;
                                if c == quote {
                                    break;
                                }
                            }
                        }
                    }
                }
                Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => self.at += 1,
                Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                    while self
                        .peek(0)
                        .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
                    {
                        self.at += 1;
                    }
                }
                _ => {
                    push(word, '$');
                    return Some(());
                }
            }
        }
        let written: String = self.chars[start..self.at].iter().collect();
        hole(word, &written, splits);
        Some(())
    }

    /// Up to the bracket that closes `count` of them; commands in it are read. Quotes in it are
    /// read in different ways by different shells.
    fn balanced(&mut self, open: char, close: char, count: usize) -> Read<()> {
        let mut depth = count;
        let mut inside = Word::default();
        while depth > 0 {
            match self.peek(0)? {
                '\\' | '\'' | '"' => return None,
                '$' | '`' => self.nested(|parser| parser.expansion(&mut inside, false))?,
                c => {
                    depth += usize::from(c == open);
                    depth -= usize::from(c == close);
                    self.at += 1;
                }
            }
        }
        Some(())
    }

    /// Is what stands from there to the closing `))` a sum? Of something else shells make a
    /// substitution with a subshell in it.
    fn is_sum(&self, from: usize) -> bool {
        let whole: String = self.chars[from..self.at].iter().collect();
        let Some(inside) = whole.strip_suffix("))") else {
            return false;
        };
        let names = inside.split(|c: char| !(c.is_ascii_alphanumeric() || "_ $".contains(c)));
        !inside.contains([';', '\n', '`'])
            && names
                .into_iter()
                .all(|part| part.split_whitespace().count() < 2)
    }
}

fn quote(word: &mut Word) {
    word.quoted = true;
    word.begins_quoted |= !word.text.contains('=');
}

fn push(word: &mut Word, c: char) {
    word.text.push(c);
    word.literal.push(c);
}

fn hole(word: &mut Word, written: &str, splits: bool) {
    word.text.push(HOLE);
    word.literal.push_str(written);
    word.splits |= splits;
}
