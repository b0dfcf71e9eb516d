//! Spellings of commands: what an `allow` never covers, and what a `deny` never misses.

use proptest::prelude::*;

use crate::kernel::policy::gate::{
    Bundle, CallTarget, Decision, Rights, Rule, Subject, WriteScope,
};

use super::CommandLine;

/// The decision of these rules if the default for shell commands is `ask`.
pub(super) fn judge(rules: &[(&str, Decision)], line: &str) -> Decision {
    judge_line(rules, CommandLine::read(line))
}

/// The same for a parsed line.
pub(super) fn judge_line(rules: &[(&str, Decision)], line: CommandLine) -> Decision {
    let rules: Vec<Rule> = rules
        .iter()
        .map(|(pattern, decision)| Rule {
            tool: "shell".to_owned(),
            pattern: Some((*pattern).to_owned()),
            node: None,
            decision: *decision,
        })
        .collect();
    let subject = Subject {
        things: line.commands.into_iter().map(CallTarget::Command).collect(),
        texts: line.texts,
        covers: String::new(),
        node: None,
    };
    let rights = Rights::new("a", &rules, WriteScope::Workspace, Bundle::default());
    rights.judge("shell", Decision::Ask, &subject).decision
}

const GIT: &[(&str, Decision)] = &[("git *", Decision::Allow), ("git push*", Decision::Deny)];
const ALL: &[(&str, Decision)] = &[("*", Decision::Allow), ("git push*", Decision::Deny)];
const WORD: &[(&str, Decision)] = &[("*", Decision::Allow), ("*push*", Decision::Deny)];

#[test]
fn a_denied_command_is_denied_in_every_spelling_that_is_understood() {
    for line in [
        "git push",
        "git  push",
        "git\tpush origin",
        "  git push  ",
        "git 'push'",
        "git \"push\"",
        "git pu''sh",
        "git p\\ush",
        "g\\it push",
        "git \\\n push",
        "git -C . push",
        "git -C. push",
        "git --no-pager push",
        "git --git-dir=x push",
        "git --git-dir x --work-tree y push",
        "git -c k=v push",
        "git -c k=v -C a -P push -f",
        "/usr/bin/git push",
        "./git push",
        "/usr/bin/../bin/git push",
        "git-push origin",
        "/usr/lib/git-core/git-push origin",
        "command git push",
        "command -p git push",
        "exec git push",
        "builtin exec git push",
        "env git push",
        "env -i A=b git push",
        "A=b git push",
        "A='b c' B=\"d\" git push",
        "nice git push",
        "nice -n 5 git push",
        "nohup git push &",
        "timeout 5 git push",
        "timeout -k 3 --signal=KILL 5m git push",
        "sudo git push",
        "sudo -u root -E git push",
        "sudo env A=b git push",
        "time git push",
        "stdbuf -oL git push",
        "busybox git push",
        "xargs git push",
        "ls | xargs -n 1 git push",
        "ls | xargs -I{} git push {}",
        "find . -name x -exec git push {} ;",
        "find . -exec git push {} \\;",
        "bash -c 'git push'",
        "sh -ec \"git push\"",
        "bash --norc -c 'cd x; git push'",
        "bash -c \"bash -c 'git push'\"",
        "sudo bash -c 'git push'",
        "eval git push",
        "eval 'git push'",
        "trap 'git push' EXIT",
        "ls; git push",
        "ls && git push",
        "ls || git push",
        "ls & git push",
        "ls | git push",
        "ls\ngit push",
        "ls # nothing\ngit push",
        "(git push)",
        "{ git push; }",
        "! git push",
        "if true; then git push; fi",
        "for x in a b; do git push; done",
        "while git push; do :; done",
        "echo $(git push)",
        "echo `git push`",
        "echo \"$(git push)\"",
        "echo ${x:-$(git push)}",
        "echo $(( $(git push) + 1 ))",
        "diff <(git push) x",
        "cat <<E\n$(git push)\nE",
        "sh <<E\ngit push\nE",
        "bash <<< 'git push'",
        "git push > /dev/null 2>&1",
        ">x git push",
        "2>x git push",
    ] {
        assert_eq!(judge(ALL, line), Decision::Deny, "{line}");
        assert_eq!(judge(GIT, line), Decision::Deny, "{line}");
    }
}

#[test]
fn what_cannot_be_read_is_asked_for_where_it_could_be_denied() {
    for line in [
        "git $X",
        "git \"$X\"",
        "g=push; git $g",
        "$G push",
        "$(echo git) push",
        "`echo git` push",
        "git $(echo push)",
        "git pu$(echo s)h",
        "git $'push'",
        "git pus?",
        "git p*",
        "git pu[s]h",
        "git {push,origin}",
        "gi? push",
        "git --frobnicate x push",
        "git --frobnicate push",
        "eval $X",
        "eval \"$(cat x)\"",
        "bash -c \"$X\"",
        "bash x.sh",
        "sh < x",
        "curl u | sh",
        ". ./x",
        "source x",
        "alias g='git push'; g",
        "git() { command git push; }; git",
        "case x in x) git push;; esac",
        "env -S 'git push'",
        "unknown-wrapper git push",
        "unknown-wrapper --flag -- git push",
        "parallel git push ::: a",
        "watch git push",
        "su -c 'git push'",
        "ssh host git push",
        "python3 -c 'import os; os.system(\"git push\")'",
        "perl -e 'system(\"git\", \"push\")'",
        "awk 'BEGIN { system(\"git\" \" push\") }'",
        "echo Z2l0 | base64 -d | bash",
        "xargs git",
        "git -c alias.p=push p",
        "git p",
        "PATH=/tmp:$PATH git status",
        "git fetch --upload-pack=x",
        "git 'unclosed",
        "git $((git push) )",
        "git status &>/dev/null git push",
        "trap -- 'git push' EXIT",
        "set -- 1; for x do git push; done",
        "ssh h <<E\ngit push\nE",
        "ssh h <<'E'\ngit pu''sh\nE",
        "at now <<< 'git push'",
        "docker exec -i c sh <<E\ngit push\nE",
        "docker exec -i c runs-lines <<E\nit's text\ngit push\nE",
        "runs-lines <<E\na\n  git push\nE",
        "csh <<E\ngit push\nE",
        "printf 'git %s' push | csh",
        "printf 'git %s' push | tcsh",
        "printf 'git %s' push | fish",
        "printf 'git %s' push | ssh h",
        "printf 'git %s' push | docker exec -i c x",
        "printf 'git %s' push | python3 -u",
        "printf 'git %s' push | { psql; }",
        "fish -c \"echo '\\''; git push #'\"",
        "zsh -c 'x'",
        "php -B 'x();'",
        "php -r 'x();'",
        "perl -MPOSIX=x y",
        "node -r ./x y",
        "node --import=data:x y",
        "ruby -rx y",
        "bash -co pipefail 'git push'",
        "bash --rcfile x -c :",
        "env -S'git push' x",
        "x 'a[$(git${IFS}push)]'",
        "x='git push'; PS4=$x; set -x; :",
        "PS4='$(git push)'; set -x; git status",
        "echo ${x:-\"}\"}; git push; echo \"a\"",
    ] {
        assert_ne!(judge(ALL, line), Decision::Allow, "{line}");
        assert_ne!(judge(GIT, line), Decision::Allow, "{line}");
    }
}

#[test]
fn a_rule_on_a_word_sees_it_through_quotes_and_holes() {
    for line in [
        "git push",
        "git pu''sh",
        "git p\\ush",
        "echo \"pu\"sh",
        "A=push; $A",
    ] {
        assert_eq!(judge(WORD, line), Decision::Deny, "{line}");
    }
    for line in ["git pu$X", "git $'pu\\x73h'", "echo *", "git pu$(echo s)h"] {
        assert_eq!(judge(WORD, line), Decision::Ask, "{line}");
    }
    assert_eq!(judge(WORD, "git status"), Decision::Allow);
}

#[test]
fn a_command_that_is_allowed_runs() {
    for line in [
        "git status",
        "git  status",
        "git --no-pager log -5 --oneline",
        "git -C sub log",
        "git 'log' --grep=\"a; b\"",
        "git add src/*.rs",
        "git commit -m 'Push it; then rest'",
        "git log | git show 2>&1 >/dev/null || git status",
        "git log 2>/dev/null | git shortlog",
        "/usr/bin/git status",
        "timeout 5 git status",
        "env LANG=C git status",
        "NO_COLOR=1 git status",
        "bash -c 'git status && git diff'",
        "( git status; git diff )",
        "git status # push",
        "git config --get user.name",
        "git config --global --get user.name",
        "git config list",
        "git config -z --list --show-origin",
        "git commit -F - <<E\nIt's done; git push is next\nE",
        "env -u X -i git status",
        "git log -- -c --output=x",
    ] {
        let rules = [GIT[0], ("git x*", Decision::Allow), GIT[1]];
        assert_eq!(judge(&rules, line), Decision::Allow, "{line}");
    }
    let several = [
        ("git *", Decision::Allow),
        ("ls*", Decision::Allow),
        ("> out/*", Decision::Allow),
    ];
    for line in ["git status; ls -l", "ls | git status", "ls -l > out/list"] {
        assert_eq!(judge(&several, line), Decision::Allow, "{line}");
    }
}

#[test]
fn an_allowed_program_opens_no_way_to_another() {
    for line in [
        "git -c core.pager='sh -c x' log",
        "git -c alias.x='!sh' x",
        "git -calias.x=!sh x",
        "git --config-env=core.pager=X log",
        "git --exec-path=/tmp log",
        "git --git-dir=/tmp/x status",
        "git config core.pager x",
        "git config --global alias.x '!sh'",
        "git fetch --upload-pack=x",
        "git fetch --upload-pa x",
        "git ls-remote --upload-pack x .",
        "git push --receive-pack=x",
        "git push --exec=x",
        "git clone -u x y",
        "git clone -c core.sshCommand=x y",
        "git clone --template=x y",
        "git clone 'ext::sh -c x' y",
        "git init --template=x",
        "git difftool -x sh",
        "git difftool --extcmd=sh",
        "git mergetool",
        "git grep -O x",
        "git grep -nOsh x",
        "git grep --open-files-in-pager=sh x",
        "git rebase -x sh",
        "git rebase --exec sh",
        "git rebase -ix sh",
        "git bisect run sh",
        "git submodule foreach sh",
        "git filter-branch --tree-filter sh",
        "git send-email --sendmail-cmd=x y",
        "git diff --ext-diff",
        "git diff --output=x",
        "git archive -o x HEAD",
        "git unknown-alias",
        "git $X",
        "git log $X",
        "git --frobnicate log",
        "GIT_SSH_COMMAND=x git fetch",
        "PAGER=x git log",
        "LD_PRELOAD=x git status",
        "PATH=/tmp git status",
        "PATH=/tmp; git status",
        "export PATH=/tmp; git status",
        "for PATH in /tmp; do git status; done",
        "env LD_PRELOAD=x git status",
        "git status > x",
        "git status >> ~/.bashrc",
        "git status &> x",
        "git apply < x",
        "git status; rm x",
        "git status & rm x",
        "git status | sh",
        "git status\nrm x",
        "git log $(rm x)",
        "git log `rm x`",
        "git log \"$(rm x)\"",
        "git() { rm x; }; git status",
        "alias git=rm; git status",
        "./git status",
        "/tmp/git status",
        "\"git \"status x",
        "'git x/y' z",
        "\"A\"=/b git status",
        "git\u{a0}x status",
        "sudo git status",
        "xargs git",
        "xargs -I git git x",
        "find . -exec rm {} ;",
        "bash -c 'git status; rm x'",
        "bash x.sh",
        "$X git status",
        "gi* status",
        "env -C /tmp/x git status",
        "env -C/tmp/x git status",
        "env --chdir=/tmp/x git status",
        "env --chdi /tmp/x git status",
        "env -u PATH git status",
        "env -uPATH git status",
        "env --unset=PATH git status",
        "git fetch x::y",
        "git log $((x)) \"${x@P}\"",
        "git config core.hooksPath list",
        "git config core.fsmonitor get",
        "git config core.fsmonitor --get",
        "git config --global core.pager -l",
        "git config --get x --unset y",
        "git config --file x list",
        "git merge -s x y",
        "git pull --strategy=x",
        "git bundle create x HEAD",
        "git format-patch -o x HEAD",
        "git status &>/dev/null git push",
        "unset PATH; git status",
        ": ${PATH:=/tmp}; git status",
        "PSQLRC=/tmp/x git status",
        "RANDOM='a[$(rm x)]' git status",
        "",
    ] {
        assert_eq!(
            judge(&[("git *", Decision::Allow)], line),
            Decision::Ask,
            "{line}"
        );
    }
    for (pattern, line) in [
        ("ls *", "ls; rm -rf x"),
        ("ls *", "ls > ~/.bashrc"),
        ("ls *", "ls x > ~/.bashrc"),
        ("ls *", "'ls x' y"),
        ("*safe", "rm x; echo safe"),
        ("*safe", "echo x > unsafe"),
        ("find *", "find . -exec rm {} +"),
        ("find *", "find . -fprint x"),
        ("fd *", "fd x -x rm"),
        ("rg *", "rg --pre sh x"),
        ("tar *", "tar xf a --to-command=sh"),
        ("tar *", "tar cIf sh a b"),
        ("sort *", "sort --compress-program=sh x"),
        ("sort *", "sort -o x y"),
        ("awk *", "awk 'BEGIN { system(\"rm x\") }'"),
        ("awk *", "awk '{ print | \"sh\" }' x"),
        ("sed *", "sed 's/a/b/e' x"),
        ("sed *", "sed -n '1e rm x' y"),
        ("sed *", "sed 'w out' y"),
        ("xargs *", "xargs rm"),
        ("env *", "env rm x"),
        ("timeout *", "timeout 5 rm x"),
        ("timeout *", "timeout 5 time x"),
        ("xargs *", "ls | xargs ar d"),
        ("git --no-color *", "git --no-color -c core.pager=x log"),
        ("rsync *", "rsync -e 'sh -c x' a b"),
        ("curl *", "curl -o ~/.bashrc u"),
        ("cargo *", "cargo --config build.rustc=x build"),
        ("cargo *", "RUSTC_WRAPPER=x cargo build"),
        ("make *", "make --eval=x"),
        ("bash *", "bash -c 'rm x'"),
        ("bash *", "bash -co pipefail 'rm x'"),
        ("bash *", "bash $X"),
        ("env *", "env -S 'rm x'"),
        ("xargs *", "xargs env"),
        ("*o *", "xargs --repl=echo echo a"),
        ("export *", "export A=$X"),
        ("find *", "find . -exec env -u + rm x ;"),
        ("sed *", "sed 's/[/]/q5;x/e;#/' x"),
        ("sed *", "sed -n p $X"),
        ("awk *", "awk -v $X '{ print }'"),
        ("printf *", "printf -v 'a[$(rm x)]' b"),
        ("read *", "read PATH"),
        ("unset *", "unset 'a[$(rm${IFS}x)]'"),
        ("test *", "test -v 'a[$(rm x)]'"),
        ("declare *", "declare -i x=y"),
        ("export *", "export \"$X\""),
        ("set *", "set -k"),
        ("echo *", "echo $((x))"),
        ("echo *", "echo ${x@P}"),
        ("echo *", "echo ${!x}"),
        ("env *", "env -C x env"),
    ] {
        assert_eq!(
            judge(&[(pattern, Decision::Allow)], line),
            Decision::Ask,
            "{pattern}: {line}"
        );
    }
    for (pattern, line) in [
        ("git -c user.name=* commit*", "git -c user.name=a commit"),
        ("git config *", "git config user.name a"),
        ("timeout 5 cargo test*", "timeout 5 cargo test x"),
        ("sudo systemctl status *", "sudo systemctl status x"),
        ("find *", "find . -name '*.rs'"),
        ("sed *", "sed -n '1,5p' x"),
        ("sed *", "sed -e 's|a|b|g' -e '/x/d' y"),
        ("awk *", "awk '{ print $1 }' x"),
        ("ls *", "ls *.rs"),
        ("echo *", "echo $HOME"),
        (
            "echo *",
            "echo $((1 + 2)) ${x:-y} ${#x} ${x%/*} \"$@\" $'a\\tb'",
        ),
        ("env -C * git status*", "env -C sub git status"),
        ("sed *", "sed 's/[[:space:]]*$//;s/[]a]/b/' x"),
        ("printf *", "printf '%s' \"$x\""),
        ("set *", "set -euo pipefail"),
        ("read *", "read -r x y"),
        ("test *", "test -n \"$x\""),
        ("export *", "export MY_OWN=\"$x\" OTHER"),
        ("cat *", "cat - <<'E'\nrm x\nE"),
        ("for-each *", "for-each x"),
    ] {
        assert_eq!(
            judge(&[(pattern, Decision::Allow)], line),
            Decision::Allow,
            "{pattern}: {line}"
        );
    }
}

#[test]
fn options_may_be_spelled_and_placed_otherwise() {
    let denied = |pattern: &'static str, line: &str| {
        judge(&[("*", Decision::Allow), (pattern, Decision::Deny)], line)
    };
    for (pattern, line) in [
        ("git push --force*", "git push origin -f"),
        ("git push --force*", "git push --forc"),
        ("git push --force*", "git push origin main --force"),
        ("rm -rf*", "rm -fr x"),
        ("rm -rf*", "rm -r -f x"),
        ("rm -rf*", "rm x -rf"),
        ("rm -rf*", "rm --recursive --force x"),
        ("docker compose push*", "docker compose -f x push"),
        ("kubectl delete*", "kubectl -n x delete pod"),
        ("npm publish*", "npm --prefix x publish"),
        ("cargo publish*", "cargo +nightly publish"),
        ("terraform apply*", "terraform -chdir=x apply"),
        ("make deploy*", "make -C x deploy"),
        ("/usr/bin/git push*", "git push"),
    ] {
        assert_ne!(denied(pattern, line), Decision::Allow, "{pattern}: {line}");
    }
    for (pattern, line) in [
        ("git push*", "git status"),
        ("git push*", "git log --grep=push"),
        ("git push*", "git commit -m 'push it'"),
        ("rm -rf*", "rm x"),
        ("kubectl delete*", "kubectl -n x get pods"),
    ] {
        assert_eq!(denied(pattern, line), Decision::Allow, "{pattern}: {line}");
    }
}

#[test]
fn a_program_without_a_shell_is_its_words() {
    let argv = ["git", "log", "a; ls", "$X"].map(str::to_owned);
    let line = CommandLine::of_argv(&argv);
    let [command] = &line.commands[..] else {
        panic!("{line:?}");
    };
    assert!(command.allows("git *"));
    assert!(!command.allows("ls*"));
}

/// One spelling of a word, chosen by `how`.
fn spelled(word: &str, how: &[u8]) -> String {
    let mut out = String::new();
    for (at, c) in word.chars().enumerate() {
        match how.get(at % how.len().max(1)).copied().unwrap_or(0) % 6 {
            0 => out.push(c),
            1 => out.push_str(&format!("\\{c}")),
            2 => out.push_str(&format!("'{c}'")),
            3 => out.push_str(&format!("\"{c}\"")),
            4 => out.push_str(&format!("''{c}")),
            _ => out.push_str(&format!("{c}\\\n")),
        }
    }
    out
}

proptest! {
    /// However a denied command is quoted, spaced, prefixed or enclosed, and whichever git options
    /// precede its subcommand: it is never allowed.
    #[test]
    fn no_spelling_of_a_denied_command_is_allowed(
        how in prop::collection::vec(any::<u8>(), 1..12),
        blanks in prop::sample::select(vec![" ", "  ", "\t", " \\\n ", " \t"]),
        before in prop::sample::select(vec![
            "", "A=b ", "env ", "command ", "exec ", "sudo ", "nice -n 3 ", "timeout 9 ", "! ",
            "ls; ", "ls && ", "ls | xargs ", "ls\n", "( ", "{ ", "if true; then ", "> x ", "time ",
            "unheard-of -x ", "echo $(", "cd x || ",
        ]),
        options in prop::collection::vec(prop::sample::select(vec![
            "-C .", "-C 'a b'", "--no-pager", "-P", "-c a.b=c", "--git-dir=.git", "--git-dir .git",
            "--bare", "--work-tree=x", "--literal-pathspecs", "--unheard-of", "--unheard-of=x",
            "-p",
        ]), 0..4),
        after in prop::sample::select(vec!["", " origin", " -f", " > /dev/null", " && ls", " | cat", " $X", " &"]),
    ) {
        let mut words = vec![spelled("git", &how)];
        words.extend(options.iter().map(ToString::to_string));
        words.push(spelled("push", &how));
        let close = match before.trim() {
            "(" | "echo $(" => ")",
            "{" => "; }",
            "if true; then" => "; fi",
            _ => "",
        };
        let line = format!("{before}{}{after}{close}", words.join(blanks));
        for rules in [GIT, ALL, WORD] {
            prop_assert_ne!(judge(rules, &line), Decision::Allow, "{}", line);
        }
    }

    /// Whatever a line contains, parsing it terminates, and no part of it is allowed by a rule for
    /// another program.
    #[test]
    fn no_line_is_allowed_by_a_rule_for_another_program(
        line in "[a-c$`'\"\\\\(){}<>|&;# \\n*?=~/-]{0,40}",
    ) {
        prop_assert_ne!(judge(&[("git *", Decision::Allow)], &line), Decision::Allow, "{}", line);
    }
}
