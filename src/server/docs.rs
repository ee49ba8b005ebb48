//! What COMMAND DOCS and COMMAND INFO say of a command.
//!
//! A command writes its arguments once, in the notation of the server's documentation:
//! `key [LEASE milliseconds] [ALL | ONCE] [arg ...]`. FAIRLOCK.HELP shows them as they are. Here they are read, for the
//! form in which the server wants them.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::size_of;
use std::ptr::{null, null_mut};

use redis_module::commands::{self, BeginSearch, FindKeys, KeySpecFlags as Flags};

use super::api::{OK, api, raw};
use raw::{
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK as BLOCK,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER as INTEGER,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY as KEY,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF as ONEOF,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN as PURE_TOKEN,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING as STRING,
};

/// A command as COMMAND DOCS, COMMAND INFO and FAIRLOCK.HELP show it.
#[derive(Clone, Copy, Debug)]
pub struct Docs {
    /// Flags as the server's documentation of `CreateCommand` lists them.
    pub flags: &'static CStr,
    /// ACL categories beyond those that follow from the flags, for servers that can set them.
    pub categories: &'static CStr,
    /// Its arguments: keywords in capitals, what may be left out in brackets and last, bars between alternatives.
    pub syntax: &'static str,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    pub keys: Option<Keys>,
    /// What it replies, in lines for FAIRLOCK.HELP, which alone shows it.
    pub reply: &'static [&'static str],
}

impl Docs {
    /// Number of arguments with the command's name; negative: at least that many.
    fn arity(&self) -> c_int {
        let (required, optional) = self.syntax.split_once('[').unwrap_or((self.syntax, ""));
        let count = required.split_whitespace().fold(1, |count, _| count + 1);
        if optional.is_empty() { count } else { -count }
    }
}

/// Which arguments are keys, and what is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The first one is read.
    Read,
    /// The first one is read and changed.
    Update,
    /// The first one is deleted.
    Delete,
    /// As many as the second argument says, after it. They are read and changed, as EVAL's are. A cluster routes by the
    /// first; that all share its slot, the command has to see for itself.
    Numbered,
}

/// The version of the module that brought the commands.
const SINCE: &CStr = c"0.1.0";

/// The arguments that are whole numbers. Others in small letters are texts, or the key.
const NUMBERS: [&str; 6] = [
    "milliseconds",
    "limit",
    "token",
    "offset",
    "count",
    "numkeys",
];

type Argument = raw::RedisModuleCommandArg;

/// Reads a syntax. What the arguments point to is kept here while the server copies it.
struct Reader<W: Iterator> {
    words: std::iter::Peekable<W>,
    names: Vec<CString>,
    lists: Vec<Vec<Argument>>,
}

impl<'s, W: Iterator<Item = &'s str>> Reader<W> {
    /// Arguments in a row, up to the end of an alternative.
    fn in_a_row(&mut self) -> Vec<Argument> {
        let mut all = Vec::new();
        while let Some(word) = self.words.next_if(|word| !["]", "|"].contains(word)) {
            all.push(match word {
                "[" => self.in_brackets(),
                _ => self.one(word),
            });
        }
        all
    }

    /// What may be left out: one argument, or one of several.
    fn in_brackets(&mut self) -> Argument {
        let mut choices = Vec::new();
        while let Some(word) = self.words.next_if(|word| *word != "]") {
            if word != "|" {
                choices.push(self.one(word));
            }
        }
        self.words.next();
        let mut argument = match choices.as_slice() {
            [only] => *only,
            _ => Argument {
                name: c"choice".as_ptr(),
                type_: ONEOF,
                subargs: self.list(choices),
                ..empty()
            },
        };
        argument.flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL.cast_signed();
        argument
    }

    /// The argument that begins with this word. What follows a keyword belongs to it.
    fn one(&mut self, word: &str) -> Argument {
        let mut argument = Argument {
            name: self.name(word.to_lowercase()),
            type_: kind(word),
            key_spec_index: if kind(word) == KEY { 0 } else { -1 },
            ..empty()
        };
        if self.words.next_if_eq(&"...").is_some() {
            argument.flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE.cast_signed();
        }
        if argument.type_ == PURE_TOKEN {
            let values = self.in_a_row();
            match values.as_slice() {
                [] => (),
                [value] if value.flags == 0 => argument = *value,
                _ => {
                    argument.type_ = BLOCK;
                    argument.subargs = self.list(values);
                }
            }
            argument.token = self.name(word.to_owned());
        }
        argument
    }

    fn name(&mut self, word: String) -> *const c_char {
        let name = CString::new(word).unwrap_or_default();
        let start = name.as_ptr();
        // Moving it does not move its bytes; the same for the list below.
        self.names.push(name);
        start
    }

    /// The server's form of a list: an array that ends with an empty argument.
    fn list(&mut self, mut arguments: Vec<Argument>) -> *mut Argument {
        arguments.push(empty());
        let start = arguments.as_mut_ptr();
        self.lists.push(arguments);
        start
    }
}

fn kind(word: &str) -> raw::RedisModuleCommandArgType {
    match word {
        "key" => KEY,
        _ if NUMBERS.contains(&word) => INTEGER,
        _ if word.starts_with(|letter: char| letter.is_ascii_uppercase()) => PURE_TOKEN,
        _ => STRING,
    }
}

fn empty() -> Argument {
    // SAFETY: the structure is plain data, of which all zeros say nothing.
    let nothing: Argument = unsafe { std::mem::zeroed() };
    Argument {
        key_spec_index: -1,
        ..nothing
    }
}

/// Where the keys are: a list that ends with an empty specification.
///
/// A cluster routes a module's command by specifications of one kind only, a range. So the first of a number of keys is
/// named once more, as what is no key but says the slot. The alternative, the flag `getkeys-api`, has the server ask
/// the module, which it does on an I/O thread too: that ends in propagation beside the main thread.
fn key_specs(keys: Keys) -> Vec<raw::RedisModuleCommandKeySpec> {
    let spec = |index, found, flags| {
        commands::KeySpec::new(None, flags, BeginSearch::new_index(index), found)
    };
    let key_at = |index, flags| spec(index, FindKeys::new_range(0, 1, 0), flags);
    let update = Flags::READ_WRITE | Flags::ACCESS | Flags::UPDATE;
    commands::get_redis_key_spec(match keys {
        Keys::Read => vec![key_at(1, Flags::READ_ONLY | Flags::ACCESS)],
        Keys::Update => vec![key_at(1, update)],
        Keys::Delete => vec![key_at(1, Flags::REMOVE | Flags::DELETE)],
        Keys::Numbered => {
            let numbered = FindKeys::new_keys_num(0, 1, 1);
            let first = key_at(3, Flags::READ_ONLY | Flags::NOT_KEY);
            vec![spec(2, numbered, update), first]
        }
    })
}

/// Gives a command's documentation to the server. False if the server refuses.
pub(super) fn describe(command: *mut raw::RedisModuleCommand, docs: &Docs) -> bool {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let spaced = docs.syntax.replace('[', "[ ").replace(']', " ]");
    let mut reader = Reader {
        words: spaced.split_whitespace().peekable(),
        names: Vec::new(),
        lists: Vec::new(),
    };
    let arguments = reader.in_a_row();
    let mut specs = docs.keys.map(key_specs);
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: docs.summary.as_ptr(),
        complexity: docs.complexity.as_ptr(),
        since: SINCE.as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: docs.arity(),
        key_specs: specs.as_mut().map_or(null_mut(), Vec::as_mut_ptr),
        args: reader.list(arguments),
    };
    // SAFETY: the command was just registered; the server copies everything that `info` points
    // to, which lives until the call returns.
    let status = unsafe { api!(SetCommandInfo(command, &raw const info)) };
    status == OK
}
