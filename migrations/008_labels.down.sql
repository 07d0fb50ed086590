drop trigger labels_forgotten on turnkeeper.turns;
drop trigger labels_forgotten on turnkeeper.messages;
drop trigger labels_forgotten on turnkeeper.summaries;
drop trigger labels_forgotten on turnkeeper.notes;
drop trigger reply_labelled on turnkeeper.replies;
drop trigger retry_labelled on turnkeeper.retries;
drop function turnkeeper.forget_labels, turnkeeper.label_reply, turnkeeper.label_retry, turnkeeper.write_note;
drop table turnkeeper.labels;
