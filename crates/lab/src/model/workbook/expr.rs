//! Spreadsheet formulas with their current values: arithmetic on [`Expr`] builds the text and computes the number.
//!
//! A value that is not a number stands for a spreadsheet error and propagates.

use std::ops::{Add, Div, Mul, Sub};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Sum,
    Product,
    Power,
    Atom,
}

/// A spreadsheet formula without its `=`.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    text: String,
    value: f64,
    rank: Rank,
    literal: bool,
}

/// Marks the sheet number of a reference until the formula's own sheet is known.
const MARK: char = '\u{1}';

impl Expr {
    fn new(text: String, value: f64, rank: Rank) -> Expr {
        Expr { text, value: if value.is_finite() { value } else { f64::NAN }, rank, literal: false }
    }

    fn call(name: &str, arguments: &[&Expr], value: f64) -> Expr {
        let texts: Vec<&str> = arguments.iter().map(|a| a.text.as_str()).collect();
        let literal = arguments.iter().all(|a| a.literal);
        if literal { Expr::from(value) } else { Expr::new(format!("{name}({})", texts.join(",")), value, Rank::Atom) }
    }

    /// A reference to a cell, as in `B12`, of a sheet.
    pub(super) fn cell(sheet: usize, name: &str, value: f64) -> Expr {
        Expr::new(format!("{MARK}{sheet}{MARK}{name}"), value, Rank::Atom)
    }

    /// The expression without a value.
    pub(super) fn none() -> Expr {
        Expr::new("NA()".into(), f64::NAN, Rank::Atom)
    }

    /// Current value; not a number if there is none.
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Whether it is a constant.
    pub(super) fn is_literal(&self) -> bool {
        self.literal
    }

    /// The text for a cell of `sheet`. `names` are the sheets' names.
    pub(super) fn text_on(&self, sheet: usize, names: &[String]) -> String {
        resolve(&self.text, sheet, names)
    }

    /// Adds brackets if the expression binds less tightly than `least`.
    fn within(&self, least: Rank) -> String {
        if self.rank < least { format!("({})", self.text) } else { self.text.clone() }
    }

    fn is(&self, value: f64) -> bool {
        self.literal && self.value == value
    }

    fn binary(&self, sign: char, other: &Expr, value: f64, rank: Rank) -> Expr {
        if self.literal && other.literal {
            return Expr::from(value);
        }
        // The right operand is always bracketed: rounding depends on the order.
        let next = if rank == Rank::Sum { Rank::Product } else { Rank::Power };
        Expr::new(format!("{}{sign}{}", self.within(rank), other.within(next)), value, rank)
    }

    fn sum(&self, other: &Expr) -> Expr {
        match (self.is(0.0), other.is(0.0)) {
            (true, _) => other.clone(),
            (_, true) => self.clone(),
            _ => self.binary('+', other, self.value + other.value, Rank::Sum),
        }
    }

    fn difference(&self, other: &Expr) -> Expr {
        if other.is(0.0) { self.clone() } else { self.binary('-', other, self.value - other.value, Rank::Sum) }
    }

    fn product(&self, other: &Expr) -> Expr {
        match (self, other) {
            (zero, _) | (_, zero) if zero.is(0.0) => Expr::from(0.0),
            (one, rest) | (rest, one) if one.is(1.0) => rest.clone(),
            _ => self.binary('*', other, self.value * other.value, Rank::Product),
        }
    }

    fn quotient(&self, other: &Expr) -> Expr {
        if self.is(0.0) || other.is(1.0) {
            return self.clone();
        }
        self.binary('/', other, self.value / other.value, Rank::Product)
    }

    pub(super) fn powi(&self, power: i32) -> Expr {
        if self.literal {
            return Expr::from(self.value.powi(power));
        }
        Expr::new(format!("{}^{power}", self.within(Rank::Atom)), self.value.powi(power), Rank::Power)
    }

    pub(super) fn power(&self, power: &Expr) -> Expr {
        Expr::call("POWER", &[self, power], self.value.powf(power.value))
    }

    pub(super) fn exp(&self) -> Expr {
        Expr::call("EXP", &[self], self.value.exp())
    }

    /// `exp(x) - 1`.
    pub(super) fn exp_m1(&self) -> Expr {
        self.exp() - 1.0
    }

    pub(super) fn sqrt(&self) -> Expr {
        Expr::call("SQRT", &[self], self.value.sqrt())
    }

    pub(super) fn abs(&self) -> Expr {
        Expr::call("ABS", &[self], self.value.abs())
    }

    /// Rounds a non-negative number up.
    pub(super) fn round_up(&self) -> Expr {
        Expr::call("ROUNDUP", &[self, &Expr::from(0.0)], self.value.ceil())
    }

    pub(super) fn max(&self, other: impl Into<Expr>) -> Expr {
        let other = other.into();
        let value = if self.value.is_nan() || other.value.is_nan() { f64::NAN } else { self.value.max(other.value) };
        Expr::call("MAX", &[self, &other], value)
    }

    pub(super) fn min(&self, other: impl Into<Expr>) -> Expr {
        let other = other.into();
        let value = if self.value.is_nan() || other.value.is_nan() { f64::NAN } else { self.value.min(other.value) };
        Expr::call("MIN", &[self, &other], value)
    }

    /// The value, or `instead` if there is none.
    pub(super) fn or(&self, instead: impl Into<Expr>) -> Expr {
        let instead = instead.into();
        let value = if self.value.is_nan() { instead.value } else { self.value };
        Expr::call("IFERROR", &[self, &instead], value)
    }

    /// The value if `condition` holds, else an empty cell.
    pub(super) fn only_if(&self, condition: &Cond) -> Expr {
        when(condition, self, Expr::none())
    }

    pub(super) fn lt(&self, other: impl Into<Expr>) -> Cond {
        self.compare("<", &other.into(), |a, b| a < b)
    }

    pub(super) fn le(&self, other: impl Into<Expr>) -> Cond {
        self.compare("<=", &other.into(), |a, b| a <= b)
    }

    pub(super) fn gt(&self, other: impl Into<Expr>) -> Cond {
        self.compare(">", &other.into(), |a, b| a > b)
    }

    fn compare(&self, sign: &str, other: &Expr, holds: fn(f64, f64) -> bool) -> Cond {
        let (a, b) = (self.value, other.value);
        let value = (!a.is_nan() && !b.is_nan()).then(|| holds(a, b));
        let text = format!("{}{sign}{}", self.text, other.text);
        Cond { text, value, literal: self.literal && other.literal }
    }
}

impl From<f64> for Expr {
    fn from(value: f64) -> Expr {
        let plain = value == 0.0 || (1e-6..1e15).contains(&value.abs());
        let text = if plain { value.to_string() } else { format!("{value:E}") };
        // Unary minus binds less tightly than a power.
        let rank = if value < 0.0 { Rank::Sum } else { Rank::Atom };
        Expr { text, value, rank, literal: true }
    }
}

impl From<&Expr> for Expr {
    fn from(other: &Expr) -> Expr {
        other.clone()
    }
}

macro_rules! operator {
    ($operator:ident, $method:ident, $make:ident) => {
        impl<R: Into<Expr>> $operator<R> for Expr {
            type Output = Expr;

            fn $method(self, right: R) -> Expr {
                self.$make(&right.into())
            }
        }

        impl<R: Into<Expr>> $operator<R> for &Expr {
            type Output = Expr;

            fn $method(self, right: R) -> Expr {
                self.$make(&right.into())
            }
        }

        impl $operator<Expr> for f64 {
            type Output = Expr;

            fn $method(self, right: Expr) -> Expr {
                Expr::from(self).$make(&right)
            }
        }

        impl $operator<&Expr> for f64 {
            type Output = Expr;

            fn $method(self, right: &Expr) -> Expr {
                Expr::from(self).$make(right)
            }
        }
    };
}

operator!(Add, add, sum);
operator!(Sub, sub, difference);
operator!(Mul, mul, product);
operator!(Div, div, quotient);

pub(super) fn sum(all: impl IntoIterator<Item = Expr>) -> Expr {
    all.into_iter().fold(Expr::from(0.0), |sum, next| sum + next)
}

/// The most arguments of a spreadsheet function.
const ARGUMENTS_MAX: usize = 200;

/// The maximum, at least 0.
pub(super) fn most(all: impl IntoIterator<Item = Expr>) -> Expr {
    let all: Vec<Expr> = all.into_iter().filter(|e| !e.is(0.0)).collect();
    let largest = |part: &[Expr]| {
        let none = part.iter().any(|e| e.value.is_nan());
        let value = if none { f64::NAN } else { part.iter().map(|e| e.value).fold(0.0, f64::max) };
        Expr::call("MAX", &part.iter().collect::<Vec<_>>(), value)
    };
    let mut parts: Vec<Expr> = all.chunks(ARGUMENTS_MAX).map(largest).collect();
    match parts.len() {
        0 => Expr::from(0.0),
        1 => parts.remove(0),
        _ => largest(&parts),
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cond {
    text: String,
    /// `None` if an operand has no value.
    value: Option<bool>,
    literal: bool,
}

impl Cond {
    pub(super) fn and(&self, other: &Cond) -> Cond {
        match (self, other) {
            (known, rest) | (rest, known) if known.literal && known.value == Some(true) => rest.clone(),
            _ => Cond {
                text: format!("AND({},{})", self.text, other.text),
                value: self.value.zip(other.value).map(|(a, b)| a && b),
                literal: self.literal && other.literal,
            },
        }
    }

    /// The text for a cell of `sheet`. `names` are the sheets' names.
    pub(super) fn text_on(&self, sheet: usize, names: &[String]) -> String {
        resolve(&self.text, sheet, names)
    }

    /// Current truth value; `None` if an operand has no value.
    pub(super) fn value(&self) -> Option<bool> {
        self.value
    }
}

/// `yes` if `condition` holds, else `no`. The other branch may have no value.
pub(super) fn when(condition: &Cond, yes: impl Into<Expr>, no: impl Into<Expr>) -> Expr {
    let (yes, no) = (yes.into(), no.into());
    match (condition.literal, condition.value) {
        (true, Some(true)) => yes,
        (true, Some(false)) => no,
        (_, value) => {
            let value = value.map_or(f64::NAN, |holds| if holds { yes.value } else { no.value });
            Expr::new(format!("IF({},{},{})", condition.text, yes.text, no.text), value, Rank::Atom)
        }
    }
}

/// Replaces each sheet number in a formula by the name of that sheet as a prefix. References to `sheet` itself get no
/// prefix.
fn resolve(text: &str, sheet: usize, names: &[String]) -> String {
    let mut resolved = String::with_capacity(text.len());
    // Every second piece is a sheet number.
    for (i, piece) in text.split(MARK).enumerate() {
        match piece.parse::<usize>() {
            Ok(other) if i % 2 == 1 => {
                if other != sheet {
                    let name = names.get(other).map_or("", String::as_str);
                    resolved.push_str(&format!("'{}'!", name.replace('\'', "''")));
                }
            }
            _ => resolved.push_str(piece),
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(e: &Expr) -> String {
        e.text_on(0, &["Here".into(), "Bob's".into()])
    }

    #[test]
    fn expression_text_computes_its_value() {
        let (a, b) = (Expr::cell(0, "A1", 2.0), Expr::cell(1, "B2", 3.0));
        for (e, expected, value) in [
            (&a + &b, "A1+'Bob''s'!B2", 5.0),
            (&a - (&a - 1.0), "A1-(A1-1)", 1.0),
            ((1.0 - &a) * &a, "(1-A1)*A1", -2.0),
            (&a / (&a * 2.0), "A1/(A1*2)", 0.5),
            ((&a * -3.0).powi(2), "(A1*(-3))^2", 36.0),
            ((0.0 - a.powi(2)).exp(), "EXP(0-A1^2)", (-4f64).exp()),
            (a.max(0.5).min(&b), "MIN(MAX(A1,0.5),'Bob''s'!B2)", 2.0),
            (when(&a.lt(&b), &a, Expr::none()), "IF(A1<'Bob''s'!B2,A1,NA())", 2.0),
            (&a * 1e-300, "A1*1E-300", 2e-300),
        ] {
            assert_eq!((text(&e).as_str(), e.value()), (expected, value));
        }
    }

    #[test]
    fn constant_expression_is_folded() {
        let a = Expr::cell(0, "A1", 2.0);
        let zero = Expr::from(0.0);
        for (e, expected) in [
            (&a + &zero, "A1"),
            (&zero * &a, "0"),
            (&a * 1.0, "A1"),
            (when(&zero.gt(0.0), &a, 7.0), "7"),
            (zero.exp(), "1"),
        ] {
            assert_eq!(text(&e), expected);
        }
    }

    #[test]
    fn error_value_propagates() {
        let none = Expr::cell(0, "A1", 1.0) / Expr::cell(0, "A2", 0.0);
        assert!(none.value().is_nan() && (&none + 1.0).value().is_nan() && none.max(1.0).value().is_nan());
        assert!(when(&none.lt(1.0), 1.0, 2.0).value().is_nan());
        assert_eq!(none.or(4.0).value(), 4.0);
        assert_eq!(when(&Expr::cell(0, "A2", 0.0).gt(0.0), none, 3.0).value(), 3.0);
    }
}
