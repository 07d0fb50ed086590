drop trigger labels_forgotten on turnkeeper.turns;
drop trigger labels_forgotten on turnkeeper.messages;
drop trigger labels_forgotten on turnkeeper.summaries;
drop trigger labels_forgotten on turnkeeper.notes;
drop trigger labels_forgotten on turnkeeper.files;
drop trigger reply_labelled on turnkeeper.replies;
drop trigger retry_labelled on turnkeeper.retries;
drop trigger message_labelled on turnkeeper.messages;
drop index turnkeeper.replies_labelled;
drop function turnkeeper.forget_labels, turnkeeper.label_reply, turnkeeper.label_retry, turnkeeper.label_repeat,
    turnkeeper.label_message, turnkeeper.said_key, turnkeeper.write_note,
    turnkeeper.label_file, turnkeeper.relabel_file;
drop table turnkeeper.files, turnkeeper.labels;
