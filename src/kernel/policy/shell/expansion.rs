//! Parses the words of a command line: quotes are removed, expansions become holes, and the
//! commands inside them are parsed.

use super::parser::{DEPTH, ParseResult, Parser, read_into};
use super::word::{HOLE, ShellWord};

/// The context of an expansion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpansionContext {
    /// Outside of quotes: the result is split into words.
    Bare,
    /// In double quotes, in a here-document or in another expansion.
    Quoted,
}

impl Parser<'_> {
    /// Parses the text of a here-document, in which only expansions are special.
    pub(super) fn expanded(&mut self, text: &str) -> ParseResult<ShellWord> {
        let mut word = ShellWord::default();
        let mut inner = Parser {
            chars: text.chars().collect(),
            at: 0,
            depth: self.depth,
            script: &mut *self.script,
            waiting: Vec::new(),
        };
        while let Some(c) = inner.peek(0) {
            // Quotes are not special there, and a backslash before one stays.
            if c == '\\' && inner.peek(1) == Some('"') {
                push(&mut word, c);
                inner.at += 1;
            }
            let c = inner.peek(0).unwrap_or(c);
            inner.in_quotes(c, &mut word)?;
        }
        Some(word)
    }

    /// Parses one word, up to a separator.
    pub(super) fn word(&mut self) -> ParseResult<ShellWord> {
        let mut word = ShellWord::default();
        let start = self.at;
        let (mut opened, mut several) = (false, false);
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' => break,
                '<' | '>' if self.peek(1) == Some('(') => {
                    self.at += 2;
                    self.is_whole_sign()?;
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
                    quote(&mut word);
                    self.double_quoted(&mut word)?;
                }
                '$' | '`' => self.expansion(&mut word, ExpansionContext::Bare)?,
                // The program named `[`.
                '[' if self.at == start && matches!(self.peek(1), Some(' ' | '\t')) => {
                    push(&mut word, c);
                    self.at += 1;
                }
                // It matches one or several files, or none.
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
            // `{a,b}`: only some shells expand it into words.
            word.text = HOLE.to_string();
            word.splits = true;
        }
        let is_sure = self.waiting.is_empty() || !self.has_line_end(start);
        (self.at > start && is_sure).then_some(word)
    }

    /// Parses from one double quote to the next.
    fn double_quoted(&mut self, word: &mut ShellWord) -> ParseResult<()> {
        self.at += 1;
        loop {
            let c = self.peek(0)?;
            if c == '"' {
                self.at += 1;
                return Some(());
            }
            self.in_quotes(c, word)?;
        }
    }

    /// Parses text between double quotes, or in a here-document.
    fn in_quotes(&mut self, c: char, word: &mut ShellWord) -> ParseResult<()> {
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
            '$' | '`' => self.expansion(word, ExpansionContext::Quoted),
            c => {
                push(word, c);
                self.at += 1;
                Some(())
            }
        }
    }

    /// Parses `$…` or backticks, including the commands that they run.
    pub(super) fn expansion(
        &mut self,
        word: &mut ShellWord,
        place: ExpansionContext,
    ) -> ParseResult<()> {
        let start = self.at;
        let mut splits = place == ExpansionContext::Bare;
        if self.peek(0)? == '`' {
            self.backticks(place)?;
        } else {
            self.at += 1;
            match self.peek(0) {
                // An escaped line end: the name after `$` is on the next line.
                Some('\\') if self.peek(1) == Some('\n') => return None,
                // Arithmetic in some shells.
                Some('[') => return None,
                Some('(') if self.peek(1) == Some('(') => {
                    self.at += 2;
                    self.sum()?;
                }
                Some('(') => {
                    self.at += 1;
                    self.is_whole_sign()?;
                    self.nested(|parser| parser.list(Some(')')))?;
                }
                Some('{') => {
                    self.at += 1;
                    splits |= self.parameter()?;
                }
                Some('\'') if splits => {
                    quote(word);
                    self.at += 1;
                    self.dollar_quoted()?;
                    splits = false;
                }
                Some('"') if splits => {
                    // A translated string in some shells.
                    let mut inside = ShellWord::default();
                    quote(word);
                    self.double_quoted(&mut inside)?;
                    splits = inside.splits;
                }
                Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                    splits |= c == '@';
                    self.at += 1;
                }
                Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name(),
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

    /// Parses a substitution in backticks. Shells differ in how they treat a backslash before a
    /// double quote or a line end in it.
    fn backticks(&mut self, place: ExpansionContext) -> ParseResult<()> {
        self.at += 1;
        let mut inner = String::new();
        loop {
            let c = self.peek(0)?;
            self.at += 1;
            match (c, self.peek(0)) {
                ('`', _) => break,
                ('\\', Some('\n')) => return None,
                ('\\', Some('"')) if place == ExpansionContext::Quoted => return None,
                ('\\', Some(c @ ('`' | '\\' | '$'))) => {
                    inner.push(c);
                    self.at += 1;
                }
                (c, _) => inner.push(c),
            }
        }
        if self.depth >= DEPTH {
            return None;
        }
        read_into(&inner, self.depth + 1, self.script);
        Some(())
    }

    /// Parses `$'…'`: quotes with escapes in some shells, a `$` before plain quotes in others.
    /// Accepted only where it ends at the same place in all of them.
    fn dollar_quoted(&mut self) -> ParseResult<()> {
        let mut backslashes = 0;
        loop {
            let c = self.peek(0)?;
            self.at += 1;
            match c {
                '\'' => return (backslashes % 2 == 0).then_some(()),
                '\\' => backslashes += 1,
                _ => backslashes = 0,
            }
        }
    }

    /// Parses the rest of `$((…))`. A name or an expansion in it may expand to an expression that
    /// runs commands.
    fn sum(&mut self) -> ParseResult<()> {
        let from = self.at;
        let mut depth = 2_usize;
        let mut inside = ShellWord::default();
        while depth > 0 {
            match self.peek(0)? {
                '\\' | '\'' | '"' => return None,
                '$' | '`' => {
                    self.nested(|parser| parser.expansion(&mut inside, ExpansionContext::Quoted))?
                }
                c => {
                    depth += usize::from(c == '(');
                    depth -= usize::from(c == ')');
                    self.at += 1;
                }
            }
        }
        let whole: String = self.chars[from..self.at].iter().collect();
        let counts = |c: char| c.is_ascii_digit() || " +-*/%()<>=!&|^~?:,".contains(c);
        let inside = whole.strip_suffix("))")?;
        inside.chars().all(counts).then_some(())
    }

    fn name(&mut self) {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        while self.peek(0).is_some_and(fits) {
            self.at += 1;
        }
    }

    /// Parses the rest of `${…}` and returns whether it may become several words even in quotes.
    /// Accepts the forms of POSIX and those of other shells that run nothing: an offset, an index,
    /// an indirection (`${!name}`) and `${name@P}` may run the content of a value.
    fn parameter(&mut self) -> ParseResult<bool> {
        let starts_name = |c: char| c.is_ascii_alphabetic() || c == '_';
        if self.peek(0) == Some('#') && self.peek(1) != Some('}') {
            self.at += 1;
            self.peek(0).filter(|c| starts_name(*c))?;
            self.name();
            return self.closing().map(|()| false);
        }
        let start = self.at;
        match self.peek(0)? {
            c if starts_name(c) => self.name(),
            c if c.is_ascii_digit() => {
                while self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
                    self.at += 1;
                }
            }
            '!' if self.peek(1) != Some('}') => return None,
            c if "@*#?-$!".contains(c) => self.at += 1,
            _ => return None,
        }
        let name: String = self.chars[start..self.at].iter().collect();
        let mut several = name == "@";
        if self.peek(0) == Some('[') {
            let index = self.peek(1).filter(|c| "@*0123456789".contains(*c))?;
            (self.peek(2) == Some(']')).then_some(())?;
            several |= index == '@';
            self.at += 3;
        }
        match self.peek(0)? {
            '}' => {}
            ':' => {
                self.peek(1).filter(|c| "-=?+".contains(*c))?;
                self.at += 1;
                // It sets the name.
                if self.peek(0) == Some('=') && super::builtins::is_steering(&name) {
                    return None;
                }
            }
            '=' if super::builtins::is_steering(&name) => return None,
            '-' | '=' | '?' | '+' | '#' | '%' | '/' | '^' | ',' => {}
            _ => return None,
        }
        let mut inside = ShellWord::default();
        while self.peek(0)? != '}' {
            match self.peek(0)? {
                // Shells differ in the quotes in it, and in where it ends.
                '\\' | '\'' | '"' | '{' | ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\n' => {
                    return None;
                }
                '$' | '`' => {
                    self.nested(|parser| parser.expansion(&mut inside, ExpansionContext::Quoted))?;
                }
                _ => self.at += 1,
            }
        }
        self.closing().map(|()| several || inside.splits)
    }

    fn closing(&mut self) -> ParseResult<()> {
        let closes = self.peek(0) == Some('}');
        self.at += usize::from(closes);
        closes.then_some(())
    }
}

fn quote(word: &mut ShellWord) {
    word.quoted = true;
    word.begins_quoted |= !word.text.contains('=');
}

fn push(word: &mut ShellWord, c: char) {
    word.text.push(c);
    word.literal.push(c);
}

fn hole(word: &mut ShellWord, written: &str, splits: bool) {
    word.text.push(HOLE);
    word.literal.push_str(written);
    word.splits |= splits;
}
