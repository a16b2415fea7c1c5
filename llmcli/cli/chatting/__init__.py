"""The terminal of `llmcli chat`: reading messages, showing replies, slash commands.

Must not know tensors, nor how a conversation is stored.
"""
