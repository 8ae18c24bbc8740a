//! The grammar of label selectors, as Kubernetes reads it.
//!
//! Words are whatever stands between operators and white space; `in` and `notin` are operators only
//! right behind a key, so a label may be called `in` and have the value `notin`.

use super::{LabelOperator, LabelRequirement, SelectorError, valid};
use crate::limits::{REQUIREMENTS_MAX, SELECTOR_VALUES_MAX};

pub(super) fn requirements(text: &str) -> Result<Vec<LabelRequirement>, SelectorError> {
    let mut parser = Parser { text, at: 0 };
    let mut found = Vec::new();
    if parser.peek() == Token::End {
        return Ok(found);
    }
    loop {
        if found.len() == REQUIREMENTS_MAX {
            return Err(SelectorError::TooLarge { what: "terms", limit: REQUIREMENTS_MAX });
        }
        found.push(parser.requirement()?);
        match parser.next() {
            (Token::End, _) => return Ok(found),
            (Token::Comma, _) => {}
            other => return parser.unexpected(other, "',' or end of selector"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    End,
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    Word(&'a str),
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next token and where it stands.
    fn next(&mut self) -> (Token<'a>, usize) {
        let rest = self.text[self.at..].trim_start_matches(is_space);
        let start = self.text.len() - rest.len();
        let (token, len) = match rest.as_bytes() {
            [] => (Token::End, 0),
            [b',', ..] => (Token::Comma, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b'!', b'=', ..] => (Token::NotEquals, 2),
            [b'!', ..] => (Token::Not, 1),
            [b'=', b'=', ..] => (Token::Equals, 2),
            [b'=', ..] => (Token::Equals, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'<', ..] => (Token::Less, 1),
            _ => {
                let len = rest.find(ends_word).unwrap_or(rest.len());
                (Token::Word(&rest[..len]), len)
            }
        };
        self.at = start + len;
        (token, start)
    }

    fn peek(&mut self) -> Token<'a> {
        let here = self.at;
        let (token, _) = self.next();
        self.at = here;
        token
    }

    /// The error that names the token just taken.
    fn unexpected<T>(
        &self,
        (_, at): (Token<'_>, usize),
        expected: &'static str,
    ) -> Result<T, SelectorError> {
        Err(SelectorError::Unexpected { found: self.text[at..self.at].to_owned(), at, expected })
    }

    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        let negated = self.peek() == Token::Not;
        if negated {
            self.next();
        }
        let key = match self.next() {
            (Token::Word(key), _) => key,
            other => return self.unexpected(other, "identifier"),
        };
        // Before what follows, so that the first mistake is the one that is told.
        valid::key(key)?;
        if negated {
            return LabelRequirement::new(key, LabelOperator::DoesNotExist, []);
        }
        if let Token::End | Token::Comma = self.peek() {
            return LabelRequirement::new(key, LabelOperator::Exists, []);
        }
        let operator = match self.next() {
            (Token::Word("in"), _) => LabelOperator::In,
            (Token::Word("notin"), _) => LabelOperator::NotIn,
            (Token::Equals, _) => LabelOperator::Equals,
            (Token::NotEquals, _) => LabelOperator::NotEquals,
            (Token::Greater, _) => LabelOperator::GreaterThan,
            (Token::Less, _) => LabelOperator::LessThan,
            other => return self.unexpected(other, "in, notin, =, ==, !=, >, <"),
        };
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        LabelRequirement::new(key, operator, values)
    }

    /// `(a,b)`. Nothing between two delimiters is the empty value, so `()` has one value.
    fn values(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        match self.next() {
            (Token::Open, _) => {}
            other => return self.unexpected(other, "'('"),
        }
        let mut values = Vec::new();
        loop {
            if values.len() == SELECTOR_VALUES_MAX {
                return Err(SelectorError::TooLarge { what: "values", limit: SELECTOR_VALUES_MAX });
            }
            let value = if let Token::Word(word) = self.peek() {
                self.next();
                word
            } else {
                ""
            };
            values.push(value);
            match self.next() {
                (Token::Comma, _) => {}
                (Token::Close, _) => return Ok(values),
                other => return self.unexpected(other, "',' or ')'"),
            }
        }
    }

    /// The one value behind `=` and the like; empty if the term ends there.
    fn value(&mut self) -> Result<&'a str, SelectorError> {
        if let Token::End | Token::Comma = self.peek() {
            return Ok("");
        }
        match self.next() {
            (Token::Word(word), _) => Ok(word),
            other => self.unexpected(other, "identifier"),
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn ends_word(c: char) -> bool {
    is_space(c) || matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}
