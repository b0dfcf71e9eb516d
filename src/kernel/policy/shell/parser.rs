//! Parses a command line into its simple commands. Expansions become holes, and the commands inside
//! them are parsed too.

use super::documents::HereDocument;
use super::word::{HOLE, ShellWord};

/// Maximum depth of nested substitutions; deeper ones are not understood.
pub(super) const DEPTH: usize = 16;
/// Maximum number of commands of one line.
const COMMANDS: usize = 512;

/// The simple commands of a line.
#[derive(Clone, Debug, Default)]
pub(super) struct ShellScript {
    pub commands: Vec<Simple>,
    /// The line with its quotes removed, for rules that match the whole line.
    pub text: String,
    /// Part of it is not understood, so it may run anything in addition.
    pub is_opaque: bool,
    /// Some of its commands may read other commands' output, a file or a here-document.
    pub is_fed: bool,
}

/// A simple command with its assignments and redirections.
#[derive(Clone, Debug, Default)]
pub(super) struct Simple {
    /// `NAME=value` words before the program.
    pub assigned: Vec<ShellWord>,
    /// The program and its arguments; empty for assignments or redirections alone.
    pub words: Vec<ShellWord>,
    /// Files that it reads from or writes to, each with its operator.
    pub redirected: Vec<(&'static str, ShellWord)>,
    /// Its input, if the line itself contains it.
    pub input: Option<ShellWord>,
}

/// Parses a line.
pub(super) fn script(text: &str) -> ShellScript {
    let mut script = ShellScript::default();
    read_into(text, 0, &mut script);
    script
}

pub(super) fn read_into(text: &str, depth: usize, script: &mut ShellScript) {
    let mut parser = Parser {
        chars: text.chars().collect(),
        at: 0,
        depth,
        script,
        waiting: Vec::new(),
    };
    let is_whole = !text.contains(HOLE) && parser.list(None).is_some();
    if !is_whole {
        script.is_opaque = true;
    }
}

/// The result of a parse step; `None` ends the parsing of the line, since it is not understood.
pub(super) type ParseResult<T> = Option<T>;

pub(super) struct Parser<'a> {
    pub chars: Vec<char>,
    pub at: usize,
    pub depth: usize,
    pub script: &'a mut ShellScript,
    /// Here-documents whose text starts after the current line.
    pub waiting: Vec<HereDocument>,
}

/// Words after which another command begins.
const BEFORE: &[&str] = &[
    "if", "then", "else", "elif", "do", "while", "until", "!", "{",
];
/// Words that end such a compound command.
const AFTER: &[&str] = &["fi", "done", "}"];
/// Words that begin a syntax that is not parsed here.
const BEYOND: &[&str] = &["case", "esac", "select", "function", "coproc", "[["];

impl Parser<'_> {
    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn takes(&mut self, text: &str) -> bool {
        let fits = text
            .chars()
            .enumerate()
            .all(|(n, c)| self.peek(n) == Some(c));
        if fits {
            self.at += text.chars().count();
        }
        fits
    }

    /// Parses commands up to `end`, or to the end of the text.
    pub(super) fn list(&mut self, end: Option<char>) -> ParseResult<()> {
        let mut simple = Simple::default();
        loop {
            self.blanks();
            let Some(next) = self.peek(0) else {
                self.finish(&mut simple, "")?;
                return (end.is_none() && self.waiting.is_empty()).then_some(());
            };
            match next {
                c if Some(c) == end => {
                    self.at += 1;
                    return self.finish(&mut simple, "");
                }
                ')' => return None,
                '\n' => {
                    self.finish(&mut simple, "; ")?;
                    self.at += 1;
                    self.documents()?;
                }
                ';' if self.peek(1) == Some(';') => return None,
                ';' => self.separator(&mut simple, ";", "; ")?,
                // One operator in some shells, two in others.
                '&' if self.peek(1) == Some('>') => return None,
                '&' if self.peek(1) == Some('&') => self.separator(&mut simple, "&&", " && ")?,
                '&' => self.separator(&mut simple, "&", " & ")?,
                '|' if self.peek(1) == Some('|') => self.separator(&mut simple, "||", " || ")?,
                '|' if self.peek(1) == Some('&') => self.separator(&mut simple, "|&", " | ")?,
                '|' => self.separator(&mut simple, "|", " | ")?,
                '(' if is_empty(&simple) && self.peek(1) != Some('(') => {
                    self.at += 1;
                    self.is_whole_sign()?;
                    self.nested(|parser| parser.list(Some(')')))?;
                }
                '(' => return None,
                '<' | '>' if self.peek(1) != Some('(') => self.redirection(&mut simple)?,
                _ => {
                    let word = self.word()?;
                    self.take(&mut simple, word)?;
                }
            }
        }
    }

    fn separator(&mut self, simple: &mut Simple, sign: &str, shown: &str) -> ParseResult<()> {
        self.at += sign.len();
        self.is_whole_sign()?;
        self.script.is_fed |= matches!(sign, "|" | "|&");
        self.finish(simple, shown)
    }

    /// Fails if an escaped line end may join the operator just read with another one.
    pub(super) fn is_whole_sign(&self) -> ParseResult<()> {
        let mut ahead = 0;
        while self.peek(ahead) == Some('\\') && self.peek(ahead + 1) == Some('\n') {
            ahead += 2;
        }
        let joins = ahead > 0 && self.peek(ahead).is_some_and(|c| "&|;<>()-".contains(c));
        (!joins).then_some(())
    }

    /// Adds a complete command to the script.
    fn finish(&mut self, simple: &mut Simple, sign: &str) -> ParseResult<()> {
        if !is_empty(simple) {
            let done = std::mem::take(simple);
            let words = done.assigned.iter().chain(&done.words);
            let words: Vec<&str> = words.map(|word| word.literal.as_str()).collect();
            self.script.text.push_str(&words.join(" "));
            for (sign, target) in &done.redirected {
                self.script
                    .text
                    .push_str(&format!(" {sign} {}", target.literal));
            }
            self.script.text.push_str(sign);
            self.script.commands.push(done);
        }
        (self.script.commands.len() <= COMMANDS).then_some(())
    }

    fn take(&mut self, simple: &mut Simple, word: ShellWord) -> ParseResult<()> {
        if simple.words.is_empty() && !word.quoted {
            let text = word.known().unwrap_or_default();
            let begins = is_empty(simple);
            if begins && BEYOND.contains(&text) {
                return None;
            }
            if begins && (BEFORE.contains(&text) || AFTER.contains(&text)) {
                return Some(());
            }
            if begins && text == "for" {
                return self.loop_head(simple);
            }
        }
        // `"A"=b` is a program, not an assignment.
        if simple.words.is_empty() && word.assigned().is_some() && !word.begins_quoted {
            if self.peek(0) == Some('(') {
                return None;
            }
            simple.assigned.push(word);
            return Some(());
        }
        simple.words.push(word);
        Some(())
    }

    /// `for NAME in words; do` or `for NAME do`: each iteration sets the name.
    fn loop_head(&mut self, simple: &mut Simple) -> ParseResult<()> {
        self.blanks();
        let name = self.word()?;
        let mut name = ShellWord::plain(name.known().filter(|_| !name.quoted)?);
        name.text.push('=');
        name.literal.push('=');
        name.text.push(HOLE);
        name.assigned()?;
        simple.assigned.push(name);
        self.blanks();
        while self.peek(0) == Some('\n') {
            if !self.waiting.is_empty() {
                return None;
            }
            self.at += 1;
            self.blanks();
        }
        if self.peek(0) == Some(';') {
            return self.finish(simple, "");
        }
        let next = self.word()?;
        match next.known().filter(|_| !next.quoted)? {
            "in" => self.loop_words(simple),
            "do" => self.finish(simple, ""),
            _ => None,
        }
    }

    fn loop_words(&mut self, simple: &mut Simple) -> ParseResult<()> {
        loop {
            self.blanks();
            match self.peek(0) {
                None | Some('\n' | ';') => return self.finish(simple, ""),
                Some('&' | '|' | '<' | '>' | '(' | ')') => return None,
                Some(_) => {
                    let word = self.word()?;
                    // The possible values of the name are kept in the text, for rules that match
                    // the whole line.
                    if let Some(name) = simple.assigned.last_mut() {
                        name.literal.push_str(&word.literal);
                        name.literal.push(' ');
                    }
                }
            }
        }
    }

    pub(super) fn blanks(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(' ' | '\t'), _) => self.at += 1,
                (Some('\\'), Some('\n')) => self.at += 2,
                (Some('#'), _) => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// Parses `<`, `>`, `>>`, `<<`, … with its operand.
    fn redirection(&mut self, simple: &mut Simple) -> ParseResult<()> {
        // A number before it is not an argument; it selects the stream.
        if let Some(last) = simple.words.last()
            && !last.quoted
            && self.at > 0
            && self.chars[self.at - 1].is_ascii_digit()
            && last.text.chars().all(|c| c.is_ascii_digit())
        {
            // Several digits are an argument in some shells.
            if last.text.len() > 1 {
                return None;
            }
            simple.words.pop();
        }
        self.script.is_fed |= self.peek(0) == Some('<');
        if self.takes("<<<") {
            self.blanks();
            simple.input = Some(self.word()?);
            return Some(());
        }
        if self.takes("<<") {
            simple.input = Some(self.document_mark()?);
            return Some(());
        }
        let sign = ["<>", "<&", "<", ">>", ">&", ">|", ">"]
            .into_iter()
            .find(|sign| self.takes(sign))?;
        self.is_whole_sign()?;
        self.blanks();
        let target = self.word()?;
        let is_stream = sign.ends_with('&')
            && (target.text.chars().all(|c| c.is_ascii_digit() || c == '-'))
            && !target.text.is_empty();
        // bash expands the file name after `>&` once more.
        if !is_stream && sign.ends_with('&') && (target.quoted || target.has_hole()) {
            return None;
        }
        if !is_stream {
            let shown = if sign == "<" { "<" } else { ">" };
            simple.redirected.push((shown, target));
        }
        Some(())
    }

    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        if self.depth >= DEPTH {
            return None;
        }
        self.depth += 1;
        let from = self.at;
        let waiting = std::mem::take(&mut self.waiting);
        let done = read(self);
        let is_complete =
            self.waiting.is_empty() && (waiting.is_empty() || !self.has_line_end(from));
        self.waiting = waiting;
        self.depth -= 1;
        done.filter(|_| is_complete)
    }

    /// True if a line ends between `from` and here. If a here-document is pending, shells differ in
    /// whether its text begins there.
    pub(super) fn has_line_end(&self, from: usize) -> bool {
        self.chars[from..self.at].contains(&'\n')
    }
}

fn is_empty(simple: &Simple) -> bool {
    simple.words.is_empty()
        && simple.assigned.is_empty()
        && simple.redirected.is_empty()
        && simple.input.is_none()
}
