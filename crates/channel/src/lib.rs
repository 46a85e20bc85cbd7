//! The emulated channel: error models, rate, queues, shared media.
