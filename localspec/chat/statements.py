"""What the store of conversations says to SQLite."""

from __future__ import annotations

CONVERSATION = """
SELECT id, title, model, created, updated, system_prompt,
    (SELECT count(*) FROM message WHERE conversation_id = conversation.id), uid, settings
FROM conversation
"""

# The end of the branch that is shown; the newest message where that one is not known.
LEAF = """
SELECT coalesce(
    (SELECT message.id FROM conversation JOIN message ON message.id = active_id
        WHERE conversation.id = :conversation AND conversation_id = :conversation),
    (SELECT max(id) FROM message WHERE conversation_id = :conversation)
)
"""

_PLACE = "FROM message AS sibling WHERE sibling.conversation_id = message.conversation_id"

_MESSAGE = f"""
SELECT message.id, message.conversation_id, message.parent_id, message.role,
    message.content, message.status, message.created, message.stats,
    (SELECT count(*) {_PLACE} AND sibling.parent_id IS message.parent_id AND sibling.id <= message.id),
    (SELECT count(*) {_PLACE} AND sibling.parent_id IS message.parent_id)
"""

ACTIVE_PATH = f"""
WITH RECURSIVE path (id, parent_id, depth) AS (
    SELECT id, parent_id, 0 FROM message WHERE id = ({LEAF})
    UNION ALL
    SELECT message.id, message.parent_id, depth + 1 FROM path JOIN message ON message.id = path.parent_id
)
{_MESSAGE} FROM path JOIN message ON message.id = path.id ORDER BY depth DESC
"""  # noqa: S608

# A child is newer than its parent, so the newest message below another one is the end of a branch.
NEWEST_BELOW = """
WITH RECURSIVE below (id) AS (
    SELECT id FROM message WHERE id = :message AND conversation_id = :conversation
    UNION ALL
    SELECT message.id FROM below JOIN message
        ON message.parent_id = below.id AND conversation_id = :conversation
)
SELECT max(id) FROM below
"""

TREE_MESSAGES = """
SELECT id, conversation_id, parent_id, role, content, status, created, stats FROM message
WHERE conversation_id = ? ORDER BY id
"""

PUT_CONVERSATION = """
INSERT INTO conversation (id, title, model, system_prompt, created, updated, uid, settings)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

PUT_MESSAGE = """
INSERT INTO message (id, conversation_id, parent_id, role, content, status, created, stats)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

ADD_CONVERSATION = """
INSERT INTO conversation (title, model, system_prompt, created, updated, uid, settings)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

CONFIGURE = "UPDATE conversation SET system_prompt = ?, settings = ? WHERE id = ?"

QUESTIONS = """
SELECT content FROM message WHERE role = 'user' AND length(content) <= ? ORDER BY id DESC LIMIT ?
"""

ADD_MESSAGE = """
INSERT INTO message (conversation_id, parent_id, role, content, status, writer, created)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

# What is given is changed; the writer follows the status.
UPDATE_MESSAGE = """
UPDATE message SET
    content = coalesce(:content, content),
    writer = CASE WHEN :status IS NULL THEN writer ELSE :writer END,
    status = coalesce(:status, status),
    stats = coalesce(:stats, stats)
WHERE id = :id
"""

TOUCH = """
UPDATE conversation SET updated = :now WHERE id = (SELECT conversation_id FROM message WHERE id = :message)
"""

UNTIE = "UPDATE message SET parent_id = NULL WHERE conversation_id = ?"

ACTIVATE = "UPDATE conversation SET active_id = :message WHERE id = :conversation"

SIBLINGS = f"""
{_MESSAGE} FROM message JOIN message AS asked
    ON asked.id = ? AND message.conversation_id = asked.conversation_id
    AND message.parent_id IS asked.parent_id
ORDER BY message.id
"""

COUNT_CHILDREN = "SELECT count(*) FROM message WHERE conversation_id = ? AND parent_id IS ?"
