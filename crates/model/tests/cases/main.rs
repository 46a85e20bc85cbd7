//! Networks in which a formula was once off by more than 10 % without a word, each with what the simulation
//! (`remora model FILE --simulate`) says: now the model is near it, or says that it may not be.

mod copies;
mod delays;
mod networks;
