//! The words of a label selector, and which of them may be keys and values.

use std::fmt;

/// What the lexer finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Comma,
    Not,
    NotEqual,
    Equal,
    DoubleEqual,
    Above,
    Below,
    OpenParen,
    CloseParen,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Word(word) => word,
            Self::Comma => ",",
            Self::Not => "!",
            Self::NotEqual => "!=",
            Self::Equal => "=",
            Self::DoubleEqual => "==",
            Self::Above => ">",
            Self::Below => "<",
            Self::OpenParen => "(",
            Self::CloseParen => ")",
        };
        write!(f, "`{text}`")
    }
}

const SYMBOLS: [(&str, Token); 9] = [
    // Longer ones first: `==` is not two `=`.
    ("==", Token::DoubleEqual),
    ("!=", Token::NotEqual),
    ("=", Token::Equal),
    ("!", Token::Not),
    (",", Token::Comma),
    (">", Token::Above),
    ("<", Token::Below),
    ("(", Token::OpenParen),
    (")", Token::CloseParen),
];

/// Cuts a selector into tokens. Everything that is no blank and no symbol is part of a word.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while !rest.is_empty() {
        if let Some((symbol, token)) =
            SYMBOLS.into_iter().find(|(symbol, _)| rest.starts_with(symbol))
        {
            found.push(token);
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find(|c| is_blank(c) || "=!,><()".contains(c)).unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start_matches(is_blank);
    }
    found
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

/// `name` or `dns.prefix/name`.
pub(super) fn label_key(word: &str) -> Result<String, String> {
    let good = match word.split_once('/') {
        None => is_name(word),
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
    };
    if good { Ok(word.to_owned()) } else { Err(format!("`{word}` is no label key")) }
}

/// Empty, or built like a name.
pub(super) fn label_value(word: &str) -> Result<String, String> {
    let good = word.is_empty() || is_name(word);
    if good { Ok(word.to_owned()) } else { Err(format!("`{word}` is no label value")) }
}

/// 1 to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=63).contains(&text.len())
        && text.chars().all(inside)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// 1 to 253 characters of dot-separated parts of lower-case letters, digits and inner `-`.
fn is_dns_subdomain(text: &str) -> bool {
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part = |part: &str| {
        part.starts_with(lower)
            && part.ends_with(lower)
            && part.chars().all(|c| lower(c) || c == '-')
    };
    (1..=253).contains(&text.len()) && text.split('.').all(part)
}
